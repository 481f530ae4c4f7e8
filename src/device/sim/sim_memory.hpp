// The card's memory manager: a ledger over host memory that plays the card. No LibTorch here.
//
// It is modelled like an allocator over paged virtual memory (CUDA's expandable segments): no external
// fragmentation, so what is reserved from the driver is the high-water mark of what was used since the last
// trim, separately for memory that may live long and for memory of a running job.
//
// A job's memory may have planned places in one region (device/placement.hpp), which is counted as a whole.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "device/placement.hpp"
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
  std::uint64_t live_peak = 0;      // as peak, of an open region only what is taken of it
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
  ~SimMemory();
  SimMemory(const SimMemory&) = delete;
  SimMemory& operator=(const SimMemory&) = delete;

  struct Block {
    void* data = nullptr;
    bool asked_driver = false;  // `reserved` grew: the caller charges the card's alloc_s
    bool occupied = false;      // no memory yet, see Occupied
  };
  /// What to do where the planned place of a request is held by work that waits in a queue: say so, so that
  /// the caller can carry that out and ask again, or take other memory.
  enum class Occupied : std::uint8_t { report, take_other };

  /// What is known of a live block.
  struct BlockFacts {
    std::size_t bytes = 0;                 // as requested
    StreamNumber stream = kDefaultStream;  // whose pool it is from
    std::uint64_t recorded = 0;            // bit s: stream s uses it too (record_stream)
  };

  /// A block of the pool of `stream`. nullptr for zero bytes, which take nothing. Throws OutOfBudget, with
  /// nothing taken, when the cap or the limit for a single allocation is exceeded.
  Block allocate(std::size_t bytes, StreamNumber stream = kDefaultStream,
                 Occupied occupied = Occupied::take_other);
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

  /// As DeviceExtras. Returns whether `reserved` grew.
  bool open_region(const RegionOptions& options);
  void close_region() noexcept;

  MemoryCounters counters() const;
  std::uint64_t cap() const;

  /// Forgets all counters and takes over new limits. Only without live blocks: false otherwise.
  bool reopen(const MemoryLimits& limits);
  /// A cap below what is used is allowed: further allocations fail.
  void set_cap(std::uint64_t bytes);
  /// Peaks start again at the present level, driver_allocs at zero.
  void reset_peaks();
  void start_window();
  /// Gives what is reserved but not used back to the driver, as far as more than `reserved` is held. False
  /// when there was nothing to give.
  bool trim(std::uint64_t reserved = 0);
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
    bool of_job = false;
    bool in_region = false;
  };
  /// Memory of one kind.
  struct Part {
    std::uint64_t used = 0;
    std::uint64_t reserved = 0;
  };
  struct Region {
    std::byte* base = nullptr;   // host memory, kept for the next region until trim()
    std::uint64_t capacity = 0;  // of it
    std::uint64_t bytes = 0;     // counted as used; 0 when no region is there
    std::uint64_t live = 0;      // taken of it
    std::uint64_t blocks = 0;    // in it, content that is held included
    bool closing = false;
  };

  std::uint64_t room() const;                                         // mutex_ held
  void check_room(std::uint64_t bytes, std::uint64_t rounded) const;  // throws OutOfBudget; mutex_ held
  bool take(Part& part, std::uint64_t rounded);       // true when the driver had to be asked; mutex_ held
  std::uint64_t reservation(const Part& part) const;  // that `part` is to grow to; mutex_ held
  bool give_back(std::uint64_t reserved);             // mutex_ held
  void count_reserved();                              // mutex_ held
  void count_live();                                  // mutex_ held
  Block enter_region(std::size_t bytes, StreamNumber stream, const Placement::Answer& answer);  // mutex_ held
  void leave_region(const void* data, std::uint64_t bytes) noexcept;                            // mutex_ held
  void release_region() noexcept;                                                               // mutex_ held

  const HostMemory host_;
  mutable std::mutex mutex_;
  MemoryLimits limits_;
  MemoryCounters counters_;
  std::uint64_t other_program_ = 0;
  Part kept_;  // memory that may live long
  Part job_;   // memory of a running job: the region and the overflow beside it
  Region region_;
  Placement* placement_ = nullptr;
  ArenaGrowth growth_ = ArenaGrowth::same_as_requested;
  std::unordered_map<const void*, Entry> blocks_;
  std::atomic<bool> any_recorded_{false};
};

}  // namespace lowtide::device::sim
