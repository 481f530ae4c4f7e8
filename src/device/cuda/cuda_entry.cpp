#include "device/cuda/cuda_entry.hpp"

#include <ATen/Context.h>
#include <c10/cuda/CUDAFunctions.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <string>

#include "device/cuda/cuda_device.hpp"
#include "lowtide/error.hpp"

namespace lowtide::device::cuda {
namespace {

/// A device by its number, initialised in LibTorch.
CudaDevice* new_device(int index) {
  // cuBLAS reads the environment once, before its first use; without this it may give other bits from run to
  // run. What the user has set is left alone.
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  const int count = c10::cuda::device_count();
  if (count == 0) throw DeviceError("the CUDA runtime finds no device that it can use");
  if (index < 0 || index >= count)
    throw DeviceError("the CUDA runtime sees " + std::to_string(count) +
                      (count == 1 ? " device" : " devices") + " only");
  // LibTorch looks its CUDA half up once and keeps the answer.
  if (!at::detail::getCUDAHooks().hasCUDA())
    throw DeviceError(
        "LibTorch looked for CUDA before it was loaded: open this device first, or link libtorch_cuda");
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  return new CudaDevice(static_cast<c10::DeviceIndex>(index));
}

CudaDevice& open_device(int index) {
  static std::mutex mutex;
  static auto* const devices = new std::map<int, CudaDevice*>;  // never destroyed: callbacks point to them
  const std::lock_guard lock(mutex);
  if (const auto known = devices->find(index); known != devices->end()) return *known->second;
  return *devices->emplace(index, new_device(index)).first->second;
}

/// One line: LibTorch appends a stack trace to its messages.
void tell(const std::exception& failure, char* error, std::size_t error_size) {
  if (error == nullptr || error_size == 0) return;
  const auto* ours = dynamic_cast<const c10::Error*>(&failure);
  std::string text = ours != nullptr ? ours->what_without_backtrace() : failure.what();
  text.resize(std::min({text.size(), text.find('\n'), error_size - 1}));
  std::memcpy(error, text.c_str(), text.size() + 1);
}

}  // namespace
}  // namespace lowtide::device::cuda

extern "C" lowtide::device::DeviceExtras* lowtide_cuda_open(int index, char* error, std::size_t error_size) {
  try {
    return &lowtide::device::cuda::open_device(index);
  } catch (const std::exception& failure) {
    lowtide::device::cuda::tell(failure, error, error_size);
    return nullptr;
  }
}
