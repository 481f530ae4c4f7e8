#include "device/cuda_driver.hpp"

#include <dlfcn.h>

#include <cstdlib>

namespace lowtide::device {
namespace {

// Results of the driver interface; cuda.h is not needed for two functions.
constexpr int kSuccess = 0;
constexpr int kNoDevice = 100;

/// "; CUDA_VISIBLE_DEVICES hides them" is the usual reason for a driver without devices.
std::string no_device() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  std::string text = "the NVIDIA driver has no device";
  if (visible != nullptr) text += " (CUDA_VISIBLE_DEVICES is '" + std::string(visible) + "')";
  return text;
}

CudaDriver ask() {
  // Stays loaded: the CUDA runtime uses it as well.
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return {.problem = "there is no NVIDIA driver on this machine (libcuda.so.1)"};
  const auto init = reinterpret_cast<int (*)(unsigned int)>(::dlsym(library, "cuInit"));
  const auto count = reinterpret_cast<int (*)(int*)>(::dlsym(library, "cuDeviceGetCount"));
  if (init == nullptr || count == nullptr)
    return {.problem = "libcuda.so.1 is no NVIDIA driver that can be used"};
  CudaDriver found;
  int status = init(0);
  if (status == kSuccess) status = count(&found.devices);
  if (status == kNoDevice || (status == kSuccess && found.devices == 0)) return {.problem = no_device()};
  if (status != kSuccess)
    return {.problem =
                "the NVIDIA driver does not start (error " + std::to_string(status) + "): check nvidia-smi"};
  return found;
}

}  // namespace

const CudaDriver& cuda_driver() {
  static const auto* const answer = new CudaDriver(ask());
  return *answer;
}

}  // namespace lowtide::device
