// The plan and its proof, as numbers, before anything runs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lowtide/bytes.hpp"

namespace lowtide {

/// How the workspace of operators is known.
enum class WorkspaceState {
  bound,    // from rules that are upper bounds
  learned,  // measured in an earlier run of this shape
};

/// All bytes. Without value where the device has no such notion (cpu).
struct PlanSummary {
  std::string model;
  std::string shapes;                  // "ids i64[2, 64]"
  bool exact = true;                   // every step is an operator of the graph: same bits at every cap
  bool bounded = true;                 // false: sizes depend on data and are not proved
  std::optional<Bytes> peak_bytes;     // highest use of the device, context included: the proof
  std::optional<Bytes> min_cap_bytes;  // the smallest cap with which this works
  Bytes context_bytes = 0;
  Bytes kept_bytes = 0;      // stays on the device between jobs
  Bytes resident_bytes = 0;  // weights that are copied once per batch
  Bytes streamed_bytes_per_pass =
      0;  // weights and state copied in every job (from the second on, where weights are kept)
  Bytes activation_bytes = 0;  // inputs, intermediate results and outputs at their highest
  Bytes activation_lower_bound_bytes = 0;
  Bytes workspace_bytes = 0;  // what operators take inside, beyond activation_bytes
  WorkspaceState workspace_state = WorkspaceState::bound;
  int wave = 1;
  std::optional<double> predicted_s;  // one job in the steady state
  double compute_s = 0;               // parts of predicted_s
  double copy_s = 0;
  double stall_s = 0;
  std::string largest_step;  // the node that needs most
};

/// One point of the time/VRAM curve.
struct CapPoint {
  Bytes cap_bytes = 0;
  double predicted_s = 0;
  Bytes resident_bytes = 0;
  Bytes streamed_bytes = 0;
};

}  // namespace lowtide
