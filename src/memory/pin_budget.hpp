// How much host memory may be page-locked.
#pragma once

#include "device/device_extras.hpp"
#include "lowtide/bytes.hpp"

namespace lowtide::memory {

/// Half of the memory that programs can still get, the cgroup's limit respected, and no more than the device
/// lets this process lock beside what is locked. Locked pages cannot be swapped: a machine that runs out of
/// others stands still.
Bytes pin_budget(const device::DeviceExtras& extras);

}  // namespace lowtide::memory
