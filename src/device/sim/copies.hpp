// Operators that the card implements itself: creating tensors, giving them other memory, and copying over the
// link.
#pragma once

#include <string>
#include <unordered_set>

namespace torch {
class Library;
}

namespace lowtide::device::sim {

/// Registers them and returns their names ("aten::copy_", "aten::empty.memory_format").
const std::unordered_set<std::string>& register_own_kernels(torch::Library& library);

}  // namespace lowtide::device::sim
