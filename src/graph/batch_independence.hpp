// Is a dimension of the inputs a batch? It is where the graph shows that nothing computed for one index of it
// depends on another index, or on how many there are. Such a dimension can be made longer with any content,
// and what was computed for the old indices is found at the same indices of the results.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.hpp"

namespace lowtide::graph {

struct BatchIndependence {
  /// Why it is no batch, in one line that names operator and source line; empty where it is one:
  /// "aten::mean.dim 'mean' (model.py:12 in forward) reduces it".
  std::string obstacle;
  /// Per output of the graph: the dimension whose size is a multiple of the symbol, batch outermost. Nothing
  /// where the output does not depend on the batch, or is a number. Empty beside an obstacle.
  std::vector<std::optional<std::size_t>> output_dims;

  bool independent() const { return obstacle.empty(); }
};

/// Follows the dimensions of `symbol` from the user inputs through all nodes. Refuses what it does not know:
/// operators without a rule, sizes that are no multiple of the symbol, rows written into memory that all rows
/// share. Uses NodeTraits for aliasing where they are filled.
BatchIndependence find_batch_independence(const Program& program, SymbolId symbol);

}  // namespace lowtide::graph
