#include "device/cuda/page_locks.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "base/host_facts.hpp"

namespace lowtide::device::cuda {
namespace {

constexpr std::uint64_t kUnlimited = UINT64_MAX;

}  // namespace

PageLocks::PageLocks() : limit_(available_ram_bytes().value_or(kUnlimited) / 2) {}

std::uint64_t PageLocks::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

bool PageLocks::lock(void* data, std::size_t size) {
  const std::lock_guard lock(mutex_);
  if (size > limit_ - std::min(limit_, bytes_)) return false;
  if (cudaHostRegister(data, size, cudaHostRegisterPortable) != cudaSuccess) return false;
  locked_[data] = size;
  bytes_ += size;
  return true;
}

void PageLocks::unlock(void* data) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = locked_.find(data);
  if (found == locked_.end()) return;
  // Fails only where the context is gone already, at the end of the process; the lock went with it.
  if (cudaHostUnregister(data) != cudaSuccess) static_cast<void>(cudaGetLastError());
  bytes_ -= found->second;
  locked_.erase(found);
}

}  // namespace lowtide::device::cuda
