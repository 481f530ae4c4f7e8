#include "device/cuda/private_pool.hpp"

#include <ATen/cuda/MemPool.h>

#include <algorithm>
#include <mutex>
#include <thread>
#include <utility>

namespace lowtide::device::cuda {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;
using Action = allocator::TraceEntry;

/// Which allocator pool is whose, and the counts. The allocator calls `note` with its lock held, so nothing
/// here calls the allocator with `mutex` held.
struct Registry {
  struct Pool {
    c10::MempoolId_t id;
    const PrivatePool* owner;
    std::uint64_t reserved;
  };

  std::mutex mutex;
  std::vector<Pool> pools;
  std::vector<std::pair<const PrivatePool*, PoolCounts>> counts;

  PoolCounts& counts_of(const PrivatePool* owner) {
    for (auto& [pool, its_counts] : counts)
      if (pool == owner) return its_counts;
    return counts.emplace_back(owner, PoolCounts{}).second;
  }

  void note(const Action& entry) noexcept {
    const std::lock_guard lock(mutex);
    const auto pool =
        std::find_if(pools.begin(), pools.end(), [&](const Pool& p) { return p.id == entry.mempool_; });
    if (pool == pools.end()) return;  // the host program's memory
    PoolCounts& c = counts_of(pool->owner);
    const std::uint64_t size = entry.size_;
    const std::uint64_t rounded = (size + 511) / 512 * 512;
    switch (entry.action_) {
      case Action::ALLOC:
        c.live += rounded;
        c.live_peak = std::max(c.live_peak, c.live);
        c.window_peak = std::max(c.window_peak, c.live);
        break;
      case Action::FREE_COMPLETED:
        c.live -= std::min(c.live, rounded);
        break;
      case Action::SEGMENT_ALLOC:
      case Action::SEGMENT_MAP:
        pool->reserved += size;
        c.reserved += size;
        c.reserved_peak = std::max(c.reserved_peak, c.reserved);
        ++c.driver_allocs;
        break;
      case Action::SEGMENT_FREE:
      case Action::SEGMENT_UNMAP:
        pool->reserved -= std::min(pool->reserved, size);
        c.reserved -= std::min(c.reserved, size);
        break;
      default:
        break;
    }
  }

  void add(c10::MempoolId_t id, const PrivatePool* owner) {
    const std::lock_guard lock(mutex);
    pools.push_back({id, owner, 0});
    static_cast<void>(counts_of(owner));  // so that `note` allocates nothing
  }

  /// Forgets the pool if it holds nothing; says whether it did.
  bool remove_empty(c10::MempoolId_t id) {
    const std::lock_guard lock(mutex);
    return std::erase_if(pools, [&](const Pool& p) { return p.id == id && p.reserved == 0; }) > 0;
  }
};

/// The callback cannot be taken back, so the registry stays for ever, as this library does.
Registry& registry() {
  static auto* const the_one = [] {
    auto* fresh = new Registry;
    allocator::attachAllocatorTraceTracker([fresh](const Action& entry) { fresh->note(entry); });
    return fresh;
  }();
  return *the_one;
}

/// A pool that the allocator knows and that nothing is taken from yet.
c10::MempoolId_t new_pool(c10::DeviceIndex device, const PrivatePool* owner) {
  const c10::MempoolId_t id = at::cuda::MemPool::graph_pool_handle();
  registry().add(id, owner);
  allocator::createOrIncrefPool(device, id);
  return id;
}

}  // namespace

PrivatePool::PrivatePool(c10::DeviceIndex device) : device_(device), id_(new_pool(device, this)) {}

void PrivatePool::begin() {
  const auto thread = std::this_thread::get_id();
  allocator::beginAllocateToPool(device_, id_,
                                 [thread](cudaStream_t) { return std::this_thread::get_id() == thread; });
}

void PrivatePool::end() noexcept {
  try {
    allocator::endAllocateToPool(device_, id_);
    allocator::releasePool(device_, id_);  // begin counted one more user
  } catch (const std::exception&) {        // begin had failed
  }
}

void PrivatePool::trim() {
  // A failure in between leaves a pool that works and one that is tried again.
  const c10::MempoolId_t old = std::exchange(id_, new_pool(device_, this));
  retired_.push_back(old);
  allocator::releasePool(device_, old);
  for (const c10::MempoolId_t& id : retired_) {
    try {
      allocator::emptyCache(id);
    } catch (const c10::Error&) {  // somebody captures a CUDA graph: memory cannot be given back just now
    }
  }
  std::erase_if(retired_, [](const c10::MempoolId_t& id) { return registry().remove_empty(id); });
}

PoolCounts PrivatePool::counts() const {
  const std::lock_guard lock(registry().mutex);
  return registry().counts_of(this);
}

void PrivatePool::reset_peaks() {
  const std::lock_guard lock(registry().mutex);
  PoolCounts& counts = registry().counts_of(this);
  counts.live_peak = counts.live;
  counts.reserved_peak = counts.reserved;
  counts.driver_allocs = 0;
}

void PrivatePool::start_window() {
  const std::lock_guard lock(registry().mutex);
  PoolCounts& counts = registry().counts_of(this);
  counts.window_peak = counts.live;
}

}  // namespace lowtide::device::cuda
