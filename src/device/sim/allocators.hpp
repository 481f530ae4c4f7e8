// PyTorch's allocators for the card: card memory, host memory (which becomes card memory inside a card's
// kernel), and page-locked host memory.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>
#include <c10/core/DispatchKey.h>

#include "device/sim/sim_card.hpp"

namespace lowtide::device::sim {

inline constexpr c10::DeviceType kSim = c10::DeviceType::PrivateUse1;
inline constexpr c10::DispatchKey kSimKey = c10::DispatchKey::PrivateUse1;
inline c10::Device sim_device() {
  return {kSim, 0};
}

/// The card of this process. Lives until the process ends, so that memory can be freed at any time before.
SimCard& sim_card();

/// Memory of the card, for tensors on device "sim". Beyond the cap it throws c10::OutOfMemoryError.
c10::DeviceAllocator& card_allocator();
/// Page-locked host memory (Tensor::pin_memory).
c10::Allocator& pinned_allocator();
/// Replaces PyTorch's CPU allocator: inside a KernelScope it hands out card memory, elsewhere plain host
/// memory.
c10::Allocator& routing_cpu_allocator();

/// Frees memory of any of the three, and memory of PyTorch's own CPU allocator.
void release_memory(void* data);

/// While it lives, CPU allocations of this thread, and of the worker threads of its parallel regions, are the
/// card's: that is what the CPU kernel's results and temporaries are. Other threads are not affected.
class KernelScope {
 public:
  KernelScope();
  ~KernelScope();
  KernelScope(const KernelScope&) = delete;
  KernelScope& operator=(const KernelScope&) = delete;

 private:
  const bool outer_;
};

}  // namespace lowtide::device::sim
