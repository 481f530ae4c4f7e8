// Page-locked host memory through which inputs, results and waiting activations travel.
#pragma once

#include <vector>

#include "memory/host_slab.hpp"

namespace lowtide::memory {

/// Hands out pieces of page-locked slabs until reset(). Grows as needed and keeps what it has for the next
/// round, as one piece. Not thread-safe.
class Staging {
 public:
  explicit Staging(device::DeviceExtras& extras) : extras_(&extras) {}

  /// `bytes` of memory, aligned to 64 bytes, valid until reset(). Pageable where the system refuses to lock
  /// more: copies are slower then. Throws Error when there is no memory.
  std::byte* take(Bytes bytes);
  /// All pieces are free again; nothing on the device may still use them.
  void reset();
  /// Taken since the last reset().
  Bytes used() const { return used_; }

 private:
  void grow(Bytes bytes);

  device::DeviceExtras* extras_;
  std::vector<HostSlab> slabs_;
  Bytes filled_ = 0;  // of the last slab
  Bytes used_ = 0;
};

}  // namespace lowtide::memory
