// Aliasing and lifetimes: which values share memory, how many bytes each storage takes and from which node to
// which it lives. Views are free; an in-place result is its input; what may alias is treated as both (own
// bytes, and it keeps its base alive).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/graph.hpp"
#include "graph/input_binding.hpp"

namespace lowtide::graph {

using StorageId = std::uint32_t;
inline constexpr StorageId kNoStorage = UINT32_MAX;

enum class StorageOrigin : std::uint8_t {
  weight,      // parameter, buffer or constant: not allocated by the run
  user_input,  // copied to the device before the first node
  produced,    // allocated by a node
};

struct Storage {
  StorageOrigin origin = StorageOrigin::produced;
  std::vector<ValueId> values;  // all that share it, in order of appearance
  std::uint64_t bytes = 0;      // exact, not rounded; 0 when unknown
  bool size_known = true;
  NodeId first = 0;      // node that produces it; 0 for weights and inputs
  NodeId last = 0;       // last node that needs it; node count when an output keeps it to the end
  bool used = false;     // read by any node or output
  bool written = false;  // some node writes it in place
  bool is_output = false;
};

struct StorageTable {
  std::vector<StorageId> of_value;  // kNoStorage for values that are no tensors
  std::vector<Storage> storages;
};

/// `weight_file` tells per graph input which storage of the archive it is (equal numbers share memory),
/// UINT32_MAX for others. Requires NodeTraits. Values without recorded meta get size_known = false.
StorageTable analyse_storages(const Graph& graph, const ShapeTable& shapes,
                              std::span<const std::uint32_t> weight_file);

/// Bytes from the first to the last element, strides respected; 0 for empty tensors. Nothing on overflow.
std::optional<std::uint64_t> storage_span_bytes(const ConcreteMeta& meta);

}  // namespace lowtide::graph
