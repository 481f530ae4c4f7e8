#include "device/cuda/page_locks.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace lowtide::device::cuda {
namespace {

std::optional<std::uint64_t> number_in(const char* path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;  // absent, or "max"
}

std::uint64_t available_host_bytes() {
  std::uint64_t available = std::numeric_limits<std::uint64_t>::max();
  std::ifstream file("/proc/meminfo");
  std::string name, rest;
  std::uint64_t kib = 0;
  while (file >> name >> kib && std::getline(file, rest)) {
    if (name == "MemAvailable:") available = kib * 1024;
  }
  const auto limit = number_in("/sys/fs/cgroup/memory.max"),
             used = number_in("/sys/fs/cgroup/memory.current");
  if (limit && used) available = std::min(available, *limit > *used ? *limit - *used : 0);
  return available;
}

}  // namespace

PageLocks::PageLocks() : limit_(available_host_bytes() / 2) {}

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
