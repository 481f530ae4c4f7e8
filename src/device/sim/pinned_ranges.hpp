// Which host memory is page-locked. Only what was locked is pinned; nothing is guessed. No LibTorch here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace lowtide::device::sim {

/// Thread-safe. As with CUDA's host registration, a range is locked once and unlocked by its start.
class PinnedRanges {
 public:
  /// False for empty ranges and for ranges that overlap a locked one.
  bool lock(const void* data, std::size_t size);
  /// False when no locked range starts at `data`.
  bool unlock(const void* data) noexcept;
  /// Bytes of the locked range that starts at `data`; 0 when none does.
  std::size_t size_at(const void* data) const;
  /// Does [data, data + size) lie in one locked range? Of an empty range only the start counts.
  bool contains(const void* data, std::size_t size) const;
  /// Locked bytes, now.
  std::uint64_t bytes() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::uintptr_t, std::size_t> sizes_;  // by start; never overlapping
  std::uint64_t bytes_ = 0;
};

}  // namespace lowtide::device::sim
