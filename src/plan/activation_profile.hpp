// What a job needs beside the weights, step by step: inputs, intermediate results, outputs, and the workspace
// of operators.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/graph.hpp"
#include "graph/op_cost.hpp"
#include "graph/storages.hpp"
#include "plan/residency_problem.hpp"

namespace lowtide::plan {

struct StepMemory {
  Bytes live = 0;       // alive before the step and during it
  Bytes results = 0;    // storages the step makes
  Bytes workspace = 0;  // upper bound of what the operator takes inside
};

struct ActivationProfile {
  std::vector<StepMemory> steps;
  Bytes layout = 0;     // a region in which inputs, results and outputs have fixed places
  Bytes inputs = 0;     // all used inputs, before the first step
  Bytes outputs = 0;    // still alive behind the last step
  bool bounded = true;  // false: some size depends on data and is not in the sums

  /// Highest sum of live and results: no run in this order can need less (views free, rounded as allocations
  /// are).
  Bytes activation_peak() const;
  /// The same with workspace.
  Bytes peak() const;
  /// Where peak() is reached.
  StepId peak_step() const;
};

/// `threads` are those of the operators, some of which take a buffer per thread. Bytes on the device, each
/// storage rounded to the granule. Values whose size is unknown are left out and make it unbounded.
ActivationProfile profile_activations(const graph::Graph& graph, const graph::ShapeTable& shapes,
                                      const graph::StorageTable& storages, int threads);

/// Time of each step on a card with these rates.
std::vector<double> step_seconds(const graph::Graph& graph, const graph::ShapeTable& shapes,
                                 const graph::StorageTable& storages, const graph::ComputeRates& rates);

}  // namespace lowtide::plan
