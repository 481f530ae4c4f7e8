#include "device/sim/touches.hpp"

#include "base_torch/dtype_convert.hpp"

namespace lowtide::device::sim {

graph::ShapeView shape_of(const at::Tensor& tensor) {
  return {from_scalar_type(tensor.scalar_type()), {tensor.sizes().data(), tensor.sizes().size()}};
}

MemoryRange range_of(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return {};
  const at::IntArrayRef sizes = tensor.sizes(), strides = tensor.strides();
  std::int64_t last = 0;
  for (std::size_t d = 0; d < sizes.size(); ++d) last += (sizes[d] - 1) * strides[d];
  const std::size_t element = tensor.itemsize();
  const auto* data = static_cast<const char*>(tensor.storage().data());
  return {data + static_cast<std::size_t>(tensor.storage_offset()) * element,
          static_cast<std::size_t>(last + 1) * element};
}

Touch touch(const at::Tensor& tensor, const char* argument, bool writes) {
  return {.range = range_of(tensor), .writes = writes, .argument = argument, .shape = shape_of(tensor)};
}

}  // namespace lowtide::device::sim
