// What one model needs for one set of input shapes, and how long its steps take: everything the session
// planner must know about a job.
#pragma once

#include <string>
#include <vector>

#include "device/sim/card.hpp"
#include "lowtide/plan_summary.hpp"
#include "session/learned_shapes.hpp"
#include "session/model_data.hpp"

namespace lowtide::detail {

struct ShapePlan {
  graph::InputDescriptions inputs;
  std::string text;  // "ids i64[2, 64], mask i64[2, 64]"
  bool bounded = true;
  /// Sizes do not depend on data: what one job took tells what the next will take. If not, nothing is learned
  /// from jobs, and they run one by one.
  bool exact_sizes = true;
  Bytes activation_bytes = 0;  // inputs, results, outputs in fixed places
  Bytes live_bytes = 0;        // the most of them that is alive at once: no layout can be smaller
  Bytes peak_bytes = 0;        // with workspace, of one job alone
  WorkspaceState state = WorkspaceState::bound;
  std::string largest_step;
  JobProfile profile;               // measured where the shape has run, else described
  JobProfile described;             // from bounds and the card's description
  std::vector<Bytes> result_bytes;  // per step
  Bytes host_bytes = 0;             // of host memory: inputs, results, rows of tables, buffers for them
  double inputs_s = 0;              // the inputs travel
  double outputs_s = 0;             // the results travel
  double inputs_host_s = 0;         // the host submits them
  double outputs_host_s = 0;        // the host submits that
  double total_step_s = 0;
  std::string learned_key;
  std::string basis;  // LearnedShapes::basis() of `described`
};

/// Throws InputError for inputs that the model does not take.
ShapePlan make_shape_plan(const ModelData& model, const graph::InputDescriptions& inputs,
                          const device::sim::Card& card, const LearnedShapes& learned, int threads);

}  // namespace lowtide::detail
