// A block of anonymous host memory, page-locked through the device where that works.
#pragma once

#include <cstddef>
#include <string>

#include "device/device_extras.hpp"
#include "lowtide/bytes.hpp"

namespace lowtide::memory {

/// Owns the memory and its page lock. Move-only. File mappings are never page-locked: drivers refuse them or
/// pin the page cache.
class HostSlab {
 public:
  HostSlab() = default;
  /// Allocates `bytes` (zero-filled) and page-locks them through `extras`. A refused lock is no error: the
  /// slab then is pageable and copies from it are slower. Throws Error when there is no memory.
  HostSlab(Bytes bytes, device::DeviceExtras& extras);
  /// The same without page lock, for memory that only the host reads.
  static HostSlab pageable(Bytes bytes);
  HostSlab(HostSlab&& other) noexcept;
  HostSlab& operator=(HostSlab&& other) noexcept;
  ~HostSlab();

  std::byte* data() const { return data_; }
  Bytes bytes() const { return bytes_; }
  bool locked() const { return locked_; }

 private:
  void free() noexcept;

  device::DeviceExtras* extras_ = nullptr;
  std::byte* data_ = nullptr;
  Bytes bytes_ = 0;
  bool locked_ = false;
};

}  // namespace lowtide::memory
