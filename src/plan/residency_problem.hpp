// What the residency planner decides about, as plain numbers: units of weights, when they are used, what
// steps and copies cost.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lowtide/bytes.hpp"

namespace lowtide::plan {

/// Index of a step: one node of the graph, in execution order.
using StepId = std::uint32_t;
using UnitId = std::uint32_t;

/// Offsets in the weight slab are multiples of this, as device allocations are.
inline constexpr Bytes kGranule = 512;

/// A piece of the weights that moves as one contiguous copy.
struct Unit {
  std::string name;
  Bytes bytes = 0;
  std::vector<StepId> uses;  // ascending, each step once, never empty
  /// It travels once a pass, however far apart its uses are: several storages in one, or weights that are
  /// read from disk.
  bool packed = false;
  /// Written by the program: stays on the device for the whole job and is copied anew for every job.
  bool state = false;
  /// Rate at which its bytes come to the link where that is slower than the link (from disk); 0: at once.
  double source_bytes_per_s = 0;
};

/// The host-to-device link as the schedule sees it.
struct Link {
  double bytes_per_s = 24e9;
  double latency_s = 1e-5;
  double launch_s = 5e-6;  // host time to issue one copy
};

/// What one step costs, in seconds.
struct StepCost {
  double host_s = 5e-6;  // the host submits it; 0 for steps that launch nothing
  double kernel_s = 0;   // on the device
  /// A transfer to the device that the step makes itself, behind the copies that are queued by then, and that
  /// its kernel waits for.
  double upload_s = 0;
  /// The host waits for the kernel, since what it submits next depends on the result.
  bool waits = false;
};

struct ResidencyProblem {
  std::vector<Unit> units;
  std::vector<StepCost> steps;
  Link link;
  double begin_s = 0;       // inputs travel: before it neither compute nor a copy of weights begins
  double begin_host_s = 0;  // the host has submitted that
  double end_s = 0;         // after the last step: results travel, the host waits

  /// Sum over units, each rounded to the granule: a slab of this size keeps everything.
  Bytes rounded_bytes() const;
  /// Sum of exact unit sizes.
  Bytes exact_bytes() const;
};

}  // namespace lowtide::plan
