// An open device: what the generic PyTorch interfaces need to know about it, and the extras they lack.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>

#include "device/device_extras.hpp"
#include "device/device_spec.hpp"

namespace lowtide::device {

/// Cheap to copy. The device itself lives as long as the process.
class Device {
 public:
  /// Opens it. cpu always works; cuda loads liblowtide_cuda and throws DeviceError, saying why, where there
  /// is none; sim loads liblowtide_sim, which changes the process (it takes PyTorch's PrivateUse1 slot and
  /// routes CPU allocations).
  static Device open(const DeviceSpec& spec);

  DeviceKind kind() const { return kind_; }
  c10::Device torch() const { return torch_; }
  /// Null for the cpu, where weights are used in place and nothing is capped.
  DeviceExtras* extras() const { return extras_; }
  bool in_place() const { return extras_ == nullptr; }

 private:
  Device(DeviceKind kind, c10::Device torch, DeviceExtras* extras)
      : kind_(kind), torch_(torch), extras_(extras) {}

  DeviceKind kind_;
  c10::Device torch_;
  DeviceExtras* extras_;
};

/// Is there a CUDA device that this build can use? Cheap: asks the driver, loads nothing of LibTorch.
bool cuda_available();

}  // namespace lowtide::device
