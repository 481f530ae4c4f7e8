// The card's errors as PyTorch reports a GPU's: c10::AcceleratorError.
#pragma once

#include <c10/util/Exception.h>

#include "lowtide/error.hpp"

namespace lowtide::device::sim {

/// Runs `work`; what the card throws as DeviceError leaves it as c10::AcceleratorError.
template <class Work>
void on_device(Work work) {
  try {
    work();
  } catch (const DeviceError& error) {
    constexpr int kLaunchFailure = 719;  // cudaErrorLaunchFailure
    throw c10::AcceleratorError({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, kLaunchFailure,
                                error.what());
  }
}

}  // namespace lowtide::device::sim
