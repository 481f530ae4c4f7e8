// Tensors as the card's cost model and race checker see them.
#pragma once

#include <ATen/core/Tensor.h>

#include "device/sim/sim_card.hpp"

namespace lowtide::device::sim {

/// Valid while the tensor keeps its sizes.
graph::ShapeView shape_of(const at::Tensor& tensor);

/// Bytes from the first element of a tensor to the end of its last one; none without elements.
MemoryRange range_of(const at::Tensor& tensor);

/// `argument` is the tensor's name in the schema, or empty. It lives as long as the process.
Touch touch(const at::Tensor& tensor, const char* argument, bool writes);

}  // namespace lowtide::device::sim
