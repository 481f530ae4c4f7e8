#include "residency/transfers.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>

namespace lowtide::residency {
namespace {

at::Tensor staged_like(const at::Tensor& tensor, memory::Staging& staging) {
  return at::from_blob(staging.take(tensor.nbytes()), tensor.sizes(), tensor.strides(),
                       tensor.options().device(at::kCPU));
}

}  // namespace

at::Tensor byte_tensor(const std::byte* data, std::size_t bytes, c10::Device device) {
  return at::for_blob(const_cast<std::byte*>(data), {static_cast<std::int64_t>(bytes)})
      .options(at::TensorOptions().dtype(at::kByte).device(device))
      .target_device(device)
      .make_tensor();
}

at::Tensor upload(const at::Tensor& host, const device::Device& device, memory::Staging& staging) {
  const at::Tensor dense = host.is_non_overlapping_and_dense() ? host : host.contiguous();
  at::Tensor result =
      at::empty_strided(dense.sizes(), dense.strides(), dense.options().device(device.torch()));
  if (dense.numel() == 0) return result;
  const at::Tensor staged = staged_like(dense, staging).copy_(dense);
  device.extras()->note_copy(/*to_device=*/true, dense.nbytes());
  return result.copy_(staged, /*non_blocking=*/true);
}

Download::Download(const at::Tensor& on_device, const device::Device& device, memory::Staging& staging) {
  if (on_device.numel() > 0) device.extras()->note_copy(/*to_device=*/false, on_device.nbytes());
  if (on_device.numel() > 0 && on_device.is_non_overlapping_and_dense()) {
    staged_ = staged_like(on_device, staging).copy_(on_device, /*non_blocking=*/true);
  } else {  // making it dense first would take device memory that nobody planned
    staged_ = on_device.to(at::kCPU);
  }
}

at::Tensor Download::result() const {
  return at::empty(staged_.sizes(), staged_.options()).copy_(staged_);
}

}  // namespace lowtide::residency
