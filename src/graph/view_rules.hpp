// Results that may share memory with an argument, decided from sizes and strides as ATen decides at run time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/graph.hpp"

namespace lowtide::graph {

/// Strides with which a tensor of `sizes` and `strides` can be seen as `new_sizes` without copying; nothing
/// when it must be copied (ATen's computeStride). Both shapes must have equally many elements, none of the
/// sizes being 0.
std::optional<std::vector<std::int64_t>> view_strides(const std::vector<std::int64_t>& sizes,
                                                      const std::vector<std::int64_t>& strides,
                                                      const std::vector<std::int64_t>& new_sizes);

enum class AliasDecision : std::uint8_t {
  alias,   // shares its memory
  fresh,   // has its own
  either,  // not known before the run
};

/// Does the result of `node` share memory with its argument `base`? Null metas are unknown.
AliasDecision decide_alias(const Node& node, const ConcreteMeta* base, const ConcreteMeta* result);

}  // namespace lowtide::graph
