// What `lowtide plan` prints: the proof, the weights, the time and the curve of one plan.
#pragma once

#include <string>
#include <vector>

#include "lowtide/session.hpp"

namespace lowtide::app {

struct PlanPage {
  PlanSummary plan;
  std::vector<PlanSummary> buckets;  // all shapes that jobs are padded to; empty without buckets
  DeviceSummary device;
  std::optional<Bytes> cap;
  std::vector<CapPoint> curve;  // may be empty
  std::optional<Session::LowVramChoice> low_vram;
  int wave_asked = 1;  // as in SessionOptions
  bool verbose = false;
};

std::string plan_page(const PlanPage& page);

/// Whose figures they are: "on the simulated card 'default'", "predicted for NVIDIA H200".
std::string figures_of(const DeviceSummary& device);

}  // namespace lowtide::app
