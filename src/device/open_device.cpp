#include <array>

#include "device/cuda/cuda_entry.hpp"
#include "device/cuda_driver.hpp"
#include "device/device.hpp"
#include "device/library_door.hpp"
#include "device/sim/sim_entry.hpp"
#include "lowtide/error.hpp"

namespace lowtide::device {
namespace {

constexpr const char* kCudaLibrary = "liblowtide_cuda.so";

DeviceExtras* open_sim(const std::string& card_json) {
  std::string reason;
  const auto open = reinterpret_cast<decltype(&lowtide_sim_open)>(
      library_door("liblowtide_sim.so", "lowtide_sim_open", reason));
  if (open == nullptr)
    throw DeviceError("cannot load the simulated card (liblowtide_sim.so" +
                      (reason.empty() ? "" : ": " + reason) + "): run tools/build");
  std::array<char, 512> message{};
  DeviceExtras* extras = open(card_json.c_str(), message.data(), message.size());
  if (extras == nullptr) throw DeviceError("cannot open the simulated card: " + std::string(message.data()));
  return extras;
}

DeviceExtras* open_cuda(int index) {
  const CudaDriver& driver = cuda_driver();
  const std::string device = "cuda:" + std::to_string(index);
  if (!driver.problem.empty())
    throw DeviceError("no CUDA device can be used: " + driver.problem + "; use --device cpu or --device sim");
  if (index >= driver.devices)
    throw DeviceError("there is no " + device + ": the NVIDIA driver has " + std::to_string(driver.devices) +
                      (driver.devices == 1 ? " device" : " devices") + ", counted from 0");
  std::string reason;
  const auto open =
      reinterpret_cast<decltype(&lowtide_cuda_open)>(library_door(kCudaLibrary, "lowtide_cuda_open", reason));
  if (open == nullptr && reason.empty())
    throw DeviceError(
        "CUDA cannot be used: this build has no liblowtide_cuda.so, since its LibTorch is for the CPU alone; "
        "build with a LibTorch for CUDA (tools/build)");
  if (open == nullptr)
    throw DeviceError("CUDA cannot be used: liblowtide_cuda.so does not load: " + reason +
                      "; run tools/build");
  std::array<char, 512> message{};
  DeviceExtras* extras = open(index, message.data(), message.size());
  if (extras == nullptr) throw DeviceError("cannot open " + device + ": " + message.data());
  return extras;
}

}  // namespace

bool cuda_available() {
  return has_library(kCudaLibrary) && cuda_driver().devices > 0;
}

Device Device::open(const DeviceSpec& spec) {
  switch (spec.kind) {
    case DeviceKind::cpu:
      break;
    case DeviceKind::sim:
      return Device(spec.kind, c10::Device(c10::DeviceType::PrivateUse1, 0), open_sim(spec.card_json));
    case DeviceKind::cuda:
      return Device(spec.kind, c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(spec.index)),
                    open_cuda(spec.index));
  }
  return Device(spec.kind, c10::Device(c10::kCPU), nullptr);
}

}  // namespace lowtide::device
