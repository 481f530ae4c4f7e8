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

/// One unit of weights as the plan treats it.
struct PlannedWeights {
  std::string name;
  Bytes bytes = 0;
  bool resident = false;    // copied once per batch
  int copies_per_pass = 1;  // 0 where it is resident
  double stall_s = 0;       // how long compute waits for it in one pass
};

/// A step that waits for a copy, and how long.
struct PlannedStall {
  std::string step;
  double seconds = 0;
};

/// How a cap on host memory is divided (SessionOptions::ram_cap). `weight_bytes` are of this model, the rest
/// of the session.
struct RamSummary {
  Bytes cap_bytes = 0;
  Bytes min_cap_bytes = 0;  // the smallest with which this works
  Bytes program_bytes = 0;  // the program beyond its start, and the graphs
  Bytes jobs_bytes = 0;     // inputs, results, buffers for them; on the cpu activations
  Bytes ring_bytes = 0;     // through which weights come from disk; 0: none do
  Bytes weight_bytes = 0;   // held in memory, tables that are looked up included
};

/// All bytes. Without value where the device has no such notion (cpu).
struct PlanSummary {
  std::string model;
  std::string shapes;                  // "ids i64[2, 64]"
  bool exact = true;                   // every step is an operator of the graph: same bits at every cap
  bool padded = false;                 // jobs are padded to this shape (ShapeBuckets); then not exact
  bool bounded = true;                 // false: sizes depend on data and are not proved
  bool data_dependent = false;         // sizes depend on data: proved with their upper bounds, if at all
  std::optional<Bytes> peak_bytes;     // highest use of the device, context included: the proof
  std::optional<Bytes> min_cap_bytes;  // the smallest cap with which this works
  std::optional<Bytes> min_cap_split_bytes;  // the same where weights may be split; nothing where none can be
  Bytes context_bytes = 0;
  Bytes state_bytes = 0;     // kept state, with the copy of before the job (ModelOptions::keep_state)
  Bytes kept_bytes = 0;      // stays on the device between jobs
  Bytes resident_bytes = 0;  // weights that are copied once per batch
  Bytes streamed_bytes_per_pass =
      0;  // weights and state copied in every job (from the second on, where weights are kept)
  std::optional<RamSummary> ram;  // with a cap on host memory
  Bytes disk_bytes_per_pass = 0;  // with it: read from the archive in every job or wave, in the steady state
  Bytes activation_bytes = 0;     // inputs, intermediate results and outputs, each in its place of one region
  Bytes activation_lower_bound_bytes = 0;  // the most of them that is alive at once: no region can be smaller
  Bytes workspace_bytes = 0;               // what operators take inside, beyond activation_bytes
  WorkspaceState workspace_state = WorkspaceState::bound;
  int wave = 1;                       // jobs that pass a group of layers together
  int groups = 1;                     // groups of layers of the wave
  Bytes spilled_bytes = 0;            // per job: what goes to host memory between groups, each way
  std::size_t split_weights = 0;      // weights that travel in chunks of rows
  std::optional<double> predicted_s;  // one job in the steady state
  double compute_s = 0;               // parts of predicted_s, per job as it is
  double copy_s = 0;
  double stall_s = 0;
  std::vector<PlannedWeights> weights;  // in order of first use; what the host looks up is not among them
  Bytes host_lookup_bytes = 0;          // tables of which only the rows that a job asks for travel
  std::vector<PlannedStall> stalls;     // longest first, at most five
  std::string largest_step;             // the node that needs most
};

/// One point of the time/VRAM curve.
struct CapPoint {
  Bytes cap_bytes = 0;
  double predicted_s = 0;
  Bytes resident_bytes = 0;
  Bytes streamed_bytes = 0;
  int wave = 1;
};

}  // namespace lowtide
