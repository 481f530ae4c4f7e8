// Where the weights, buffers and constants of a program lie in its archive.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/graph.hpp"

namespace lowtide::graph {

/// One record of the archive = one storage: held once and moved once, however many names point into it.
struct WeightFile {
  std::string record;  // "data/weights/weight_12"
  std::uint64_t offset =
      0;  // of the first byte in the archive file; multiple of the element size of all its views
  std::uint64_t bytes = 0;
};

/// One name: a view of a storage. Checked on reading: every element lies inside the file.
struct Weight {
  std::string name;        // "blocks.0.norm1.weight"
  std::uint32_t file = 0;  // index into WeightTable::files
  ConcreteMeta meta;       // storage_offset in elements
};

struct WeightTable {
  std::vector<WeightFile> files;
  std::vector<Weight> weights;
  std::unordered_map<std::string, std::uint32_t> parameters_and_buffers;  // name -> index into weights
  std::unordered_map<std::string, std::uint32_t> constants;               // name -> index into weights

  /// Per graph input: index into weights, or UINT32_MAX for inputs that are no weights. Throws ArchiveError
  /// when the graph names a weight that the archive does not have, or with another dtype or shape.
  std::vector<std::uint32_t> resolve(const Graph& graph) const;
  /// Sum over files.
  std::uint64_t total_bytes() const;
};

}  // namespace lowtide::graph
