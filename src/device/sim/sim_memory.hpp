// The card's memory manager: a ledger over host memory that plays the card. No LibTorch here.
//
// It is modelled like an allocator over paged virtual memory (CUDA's expandable segments): no external
// fragmentation, so what is reserved from the driver is the high-water mark of what was used since the last
// trim.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "device/sim/clocks.hpp"

namespace lowtide::device::sim {

/// Where the bytes come from. `allocate` throws or returns memory aligned to 64 bytes.
struct HostMemory {
  void* (*allocate)(std::size_t);
  void (*free)(void*);
};

struct MemoryLimits {
  std::uint64_t context_bytes = 0;
  std::uint64_t total_bytes = UINT64_MAX;  // of the card: shared with other programs
  std::uint64_t cap_bytes = UINT64_MAX;    // on used bytes, context included
  std::uint64_t max_allocation_bytes = 0;  // 0 = no limit
  bool poison = true;
};

/// Bytes, context included where it says used, peak or reserved.
struct MemoryCounters {
  std::uint64_t used = 0;
  std::uint64_t peak = 0;
  std::uint64_t window_peak = 0;
  std::uint64_t reserved = 0;
  std::uint64_t reserved_peak = 0;
  std::uint64_t driver_allocs = 0;  // times `reserved` had to grow
  std::uint64_t blocks = 0;         // live allocations
};

/// Thread-safe.
class SimMemory {
 public:
  static constexpr std::uint64_t kGranule = 512;     // every block takes a multiple of it
  static constexpr unsigned char kFreshByte = 0xCD;  // content of memory nobody has written
  static constexpr unsigned char kFreedByte = 0xDD;  // content of memory somebody gave back

  explicit SimMemory(HostMemory host) : host_(host) {}
  SimMemory(const SimMemory&) = delete;
  SimMemory& operator=(const SimMemory&) = delete;

  struct Block {
    void* data = nullptr;
    bool asked_driver = false;  // `reserved` grew: the caller charges the card's alloc_s
  };
  /// What is known of a live block.
  struct BlockFacts {
    std::size_t bytes = 0;                 // as requested
    StreamNumber stream = kDefaultStream;  // whose pool it is from
    std::uint64_t recorded = 0;            // bit s: stream s uses it too (record_stream)
  };

  /// A block of the pool of `stream`. nullptr for zero bytes, which take nothing. Throws OutOfBudget, with
  /// nothing taken, when the cap or the limit for a single allocation is exceeded.
  Block allocate(std::size_t bytes, StreamNumber stream = kDefaultStream);
  /// Gives back a block. Nothing happens, and nothing is returned, when `data` is none of ours.
  std::optional<BlockFacts> free(void* data) noexcept;
  bool owns(const void* data) const { return find(data).has_value(); }
  /// Nothing when no live block starts at `data`.
  std::optional<BlockFacts> find(const void* data) const;
  /// The block is used by `stream`, too. Nothing happens when no live block starts at `data`.
  void record_stream(const void* data, StreamNumber stream);
  /// Has a stream ever been recorded?
  bool any_recorded() const { return any_recorded_.load(std::memory_order_relaxed); }
  /// Work that waits in a queue still needs the block's bytes: when it is freed its bytes count no more, but
  /// its content stays until as many calls of let_go(). False when no live block starts at `data`.
  bool hold(const void* data);
  void let_go(void* data) noexcept;

  MemoryCounters counters() const;
  std::uint64_t cap() const;

  /// Forgets all counters and takes over new limits. Only without live blocks: false otherwise.
  bool reopen(const MemoryLimits& limits);
  /// A cap below what is used is allowed: further allocations fail.
  void set_cap(std::uint64_t bytes);
  /// Peaks start again at the present level, driver_allocs at zero.
  void reset_peaks();
  void start_window();
  /// Gives what is reserved but not used back to the driver. False when there was nothing to give.
  bool trim();
  /// Memory of the card that another program holds.
  void set_other_program(std::uint64_t bytes);
  /// The card's memory that no other program holds.
  std::uint64_t reachable_bytes() const;
  /// Bytes that could be allocated now.
  std::uint64_t free_bytes() const;

 private:
  struct Entry {
    BlockFacts facts;
    std::uint32_t holds = 0;
    bool freed = false;  // only its content is still there
  };

  std::uint64_t room() const;                                         // mutex_ held
  void check_room(std::uint64_t bytes, std::uint64_t rounded) const;  // throws OutOfBudget; mutex_ held
  bool take(std::uint64_t rounded);  // true when the driver had to be asked; mutex_ held

  const HostMemory host_;
  mutable std::mutex mutex_;
  MemoryLimits limits_;
  MemoryCounters counters_;
  std::uint64_t other_program_ = 0;
  std::unordered_map<const void*, Entry> blocks_;
  std::atomic<bool> any_recorded_{false};
};

}  // namespace lowtide::device::sim
