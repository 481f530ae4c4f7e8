// What a job of a wave holds between two groups of layers, moved to host memory and back.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "device/device.hpp"
#include "memory/staging.hpp"

namespace lowtide::residency {

/// Tensors that left the device. Views of one storage come back as views of one storage. Move-only.
class ParkedValues {
 public:
  /// Takes the tensors (undefined ones allowed) to `memory`, at least bytes_of(tensors) of staging memory,
  /// and lets them go. Those whose memory lies in `stays` (the weights' slab) are kept as they are.
  void park(std::vector<at::Tensor> tensors, const at::Tensor& stays, const device::Device& device,
            memory::Staging& staging);
  /// The same tensors on the device again, in the order of park(). May be repeated after it threw
  /// c10::OutOfMemoryError.
  std::vector<at::Tensor> restore(const device::Device& device);

  bool empty() const { return tensors_.empty(); }

 private:
  struct Storage {
    at::Tensor room;  // page-locked bytes, as many as needed or more
    std::int64_t bytes = 0;
  };
  struct View {
    at::Tensor kept;  // what stays on the device, or undefined
    std::size_t storage = SIZE_MAX;
    at::ScalarType dtype = at::kByte;
    std::vector<std::int64_t> sizes;
    std::vector<std::int64_t> strides;
    std::int64_t offset = 0;
  };

  at::Tensor take_room(std::int64_t bytes, memory::Staging& staging);

  std::vector<Storage> storages_;
  std::vector<View> tensors_;
  std::vector<at::Tensor> pool_;  // rooms of earlier rounds, free again in stream order
};

}  // namespace lowtide::residency
