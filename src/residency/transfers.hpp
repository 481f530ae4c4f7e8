// Tensors between host and device through page-locked memory, on the compute stream, without waiting.
#pragma once

#include <ATen/core/Tensor.h>

#include "device/device.hpp"
#include "memory/staging.hpp"

namespace lowtide::residency {

/// Memory as a tensor of bytes, without a copy and without a call of an operator. It must outlive the tensor.
at::Tensor byte_tensor(const std::byte* data, std::size_t bytes, c10::Device device);

/// `host` as a tensor on the device, with the same sizes and, where it is dense, the same strides. `host` may
/// go at once. Throws c10::OutOfMemoryError.
at::Tensor upload(const at::Tensor& host, const device::Device& device, memory::Staging& staging);

/// A tensor on its way to the host.
class Download {
 public:
  Download() = default;
  /// The device's memory may be freed, in stream order, as soon as this returns.
  Download(const at::Tensor& on_device, const device::Device& device, memory::Staging& staging);
  /// The tensor in memory of its own, contiguous. The device has been synchronised since.
  at::Tensor result() const;

 private:
  at::Tensor staged_;
};

}  // namespace lowtide::residency
