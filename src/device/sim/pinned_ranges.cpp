#include "device/sim/pinned_ranges.hpp"

#include <iterator>

namespace lowtide::device::sim {

bool PinnedRanges::lock(const void* data, std::size_t size) {
  const auto start = reinterpret_cast<std::uintptr_t>(data);
  if (data == nullptr || size == 0 || size > UINTPTR_MAX - start) return false;
  const std::lock_guard guard(mutex_);
  const auto after = sizes_.lower_bound(start);
  if (after != sizes_.end() && after->first - start < size) return false;
  if (after != sizes_.begin()) {
    const auto before = std::prev(after);
    if (start - before->first < before->second) return false;
  }
  sizes_.emplace_hint(after, start, size);
  bytes_ += size;
  return true;
}

bool PinnedRanges::unlock(const void* data) noexcept {
  const std::lock_guard guard(mutex_);
  const auto found = sizes_.find(reinterpret_cast<std::uintptr_t>(data));
  if (found == sizes_.end()) return false;
  bytes_ -= found->second;
  sizes_.erase(found);
  return true;
}

std::size_t PinnedRanges::size_at(const void* data) const {
  const std::lock_guard guard(mutex_);
  const auto found = sizes_.find(reinterpret_cast<std::uintptr_t>(data));
  return found == sizes_.end() ? 0 : found->second;
}

bool PinnedRanges::contains(const void* data, std::size_t size) const {
  const auto start = reinterpret_cast<std::uintptr_t>(data);
  const std::lock_guard guard(mutex_);
  const auto after = sizes_.upper_bound(start);
  if (after == sizes_.begin()) return false;
  const auto& [first, length] = *std::prev(after);
  const std::size_t offset = start - first;
  return offset < length && size <= length - offset;
}

std::uint64_t PinnedRanges::bytes() const {
  const std::lock_guard guard(mutex_);
  return bytes_;
}

}  // namespace lowtide::device::sim
