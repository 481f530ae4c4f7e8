// Host memory that is page-locked for the GPU, and how much of it may be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace lowtide::device::cuda {

/// Thread-safe. Locks are for all devices of the process.
class PageLocks {
 public:
  /// The limit is half of the memory that is available now (the cgroup's limit respected): locked memory can
  /// be given to nobody else. CUDA itself sets none, and most drivers ignore `ulimit -l`.
  PageLocks();

  std::uint64_t limit_bytes() const { return limit_; }
  std::uint64_t bytes() const;

  /// False beyond the limit, and when the driver refuses: its error is then still pending.
  bool lock(void* data, std::size_t size);
  /// Unknown pointers are ignored.
  void unlock(void* data) noexcept;

 private:
  const std::uint64_t limit_;
  mutable std::mutex mutex_;
  std::map<void*, std::size_t> locked_;
  std::uint64_t bytes_ = 0;
};

}  // namespace lowtide::device::cuda
