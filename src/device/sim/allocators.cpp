#include "device/sim/allocators.hpp"

#include <ATen/Parallel.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <cstring>

#include "device/sim/streams.hpp"
#include "lowtide/error.hpp"

namespace lowtide::device::sim {
namespace {

thread_local bool in_kernel = false;
std::atomic<int> running_kernels{0};

/// Worker threads of a parallel region do not inherit thread-local state. While a kernel runs, whoever
/// allocates inside a parallel region is taken for one of its workers.
bool allocates_for_a_kernel() {
  return in_kernel || (running_kernels.load(std::memory_order_relaxed) != 0 && at::in_parallel_region());
}

void* allocate_card_memory(std::size_t bytes) {
  try {
    return sim_card().allocate(bytes, current_stream());
  } catch (const OutOfBudget& error) {
    TORCH_CHECK_WITH(OutOfMemoryError, false, error.what());
  }
}

class CardAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* data = allocate_card_memory(bytes);
    return {data, data, &release_memory, sim_device()};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release_memory; }
  void copy_data(void* target, const void* source, std::size_t count) const override {
    std::memcpy(target, source, count);
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override { sim_card().trim(); }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    sim_card().memory().record_stream(data.get(), stream.id());
  }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override {
    const MemoryCounters counters = sim_card().memory().counters();
    const auto context = static_cast<std::int64_t>(sim_card().context_bytes());
    c10::CachingDeviceAllocator::DeviceStats stats;
    const auto set = [&](c10::CachingAllocator::StatArray& stat, std::uint64_t current, std::uint64_t peak) {
      stat[0].current = static_cast<std::int64_t>(current) - context;
      stat[0].peak = static_cast<std::int64_t>(peak) - context;
    };
    set(stats.allocated_bytes, counters.used, counters.peak);
    set(stats.active_bytes, counters.used, counters.peak);
    set(stats.reserved_bytes, counters.reserved, counters.reserved_peak);
    stats.allocation[0].current = static_cast<std::int64_t>(counters.blocks);
    stats.active[0].current = stats.allocation[0].current;
    stats.num_device_alloc = static_cast<std::int64_t>(counters.driver_allocs);
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override { sim_card().memory().reset_peaks(); }
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex) override {
    return {sim_card().memory().free_bytes(), sim_card().total_bytes()};
  }
};

class RoutingCpuAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* data = nullptr;
    if (bytes != 0) data = allocates_for_a_kernel() ? allocate_card_memory(bytes) : c10::alloc_cpu(bytes);
    return {data, data, &release_memory, c10::Device(c10::DeviceType::CPU)};
  }
  /// oneDNN allocates and frees through the raw interface.
  c10::DeleterFnPtr raw_deleter() const override { return &release_memory; }
  void copy_data(void* target, const void* source, std::size_t count) const override {
    std::memcpy(target, source, count);
  }
};

void release_pinned(void* data) {
  if (data == nullptr) return;
  sim_card().release_page_lock(data);
  c10::free_cpu(data);
}

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* data = bytes == 0 ? nullptr : c10::alloc_cpu(bytes);
    if (data != nullptr && !sim_card().page_lock(data, bytes)) {
      sim_card().clear_error();
      c10::free_cpu(data);
      TORCH_CHECK(false, "simulated card: cannot page-lock ", bytes, " bytes; use pageable memory");
    }
    return {data, data, &release_pinned, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release_pinned; }
  void copy_data(void* target, const void* source, std::size_t count) const override {
    std::memcpy(target, source, count);
  }
};

}  // namespace

// These live for ever: tensors in other libraries' static variables may be freed after our static variables
// are gone.
SimCard& sim_card() {
  static SimCard* const card = new SimCard({.allocate = &c10::alloc_cpu, .free = &c10::free_cpu});
  return *card;
}

c10::DeviceAllocator& card_allocator() {
  static CardAllocator* const allocator = new CardAllocator;
  return *allocator;
}

c10::Allocator& pinned_allocator() {
  static PinnedAllocator* const allocator = new PinnedAllocator;
  return *allocator;
}

c10::Allocator& routing_cpu_allocator() {
  static RoutingCpuAllocator* const allocator = new RoutingCpuAllocator;
  return *allocator;
}

void release_memory(void* data) {
  if (data != nullptr && !sim_card().free(data)) c10::free_cpu(data);
}

KernelScope::KernelScope() : outer_(in_kernel) {
  in_kernel = true;
  running_kernels.fetch_add(1, std::memory_order_relaxed);
}

KernelScope::~KernelScope() {
  running_kernels.fetch_sub(1, std::memory_order_relaxed);
  in_kernel = outer_;
}

}  // namespace lowtide::device::sim
