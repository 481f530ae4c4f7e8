// The simulated card: memory, clocks, order, page-locked ranges and deferred copies behind one door. No
// LibTorch here; the files that teach PyTorch about the card (allocators, streams, kernels, copies) call it.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "device/device_extras.hpp"
#include "device/sim/card.hpp"
#include "device/sim/clocks.hpp"
#include "device/sim/faults.hpp"
#include "device/sim/pinned_ranges.hpp"
#include "device/sim/race_checker.hpp"
#include "device/sim/sim_memory.hpp"
#include "device/sim/work_queues.hpp"

namespace lowtide::device::sim {

/// A recorded event: everything the stream had accepted up to then.
struct EventPoint {
  StreamNumber stream = kDefaultStream;
  std::uint64_t position = 0;  // in the stream's queue
  TimeStamp time;
  VectorClock known;
};

/// Bytes that an operator or a copy reads or writes.
struct Touch {
  MemoryRange range;
  bool writes = false;
  const char* argument = "";  // lives as long as the process
  graph::ShapeView shape;     // for messages
  bool by_host = false;       // the host does it itself while it submits the work
};

/// Thread-safe.
class SimCard final : public DeviceExtras {
 public:
  explicit SimCard(HostMemory host);

  /// Becomes this card, all counters at zero. Throws DeviceError while memory is allocated, unless it is the
  /// card already (then nothing changes).
  void open(const Card& card);
  Card card() const;
  /// Replaces the card's faults; counts from zero.
  void inject(const Faults& faults);

  // --- memory ---
  /// As SimMemory::allocate, and charges the host's clock when the driver had to be asked. Waits for blocks
  /// that recorded streams still use when there is no other room, as CUDA's allocator does.
  void* allocate(std::size_t bytes, StreamNumber stream);
  /// Gives a block back to its stream's pool; later, if other streams were recorded for it and are not done.
  /// False when `data` is none of the card's blocks.
  bool free(void* data) noexcept;
  SimMemory& memory() { return memory_; }
  const PinnedRanges& pinned() const { return pinned_; }

  // --- work, in the order the host submits it ---
  /// Before an operator runs: carries out what its stream has accepted.
  void enter_stream(StreamNumber stream);
  /// An operator ran. `synchronises`: the host waits for the result. Throws DeviceError when something it
  /// touched is not ordered after its last use, and for errors that earlier calls left behind. `name` lives
  /// as long as the process.
  void account_operator(StreamNumber stream, const char* name, const graph::OpCost& cost, bool synchronises,
                        std::span<const Touch> touches);
  /// Before a copy over the link. Throws DeviceError when it is to fail.
  void check_copy();
  /// A copy over the link was accepted or made. Throws as account_operator.
  void account_copy(StreamNumber stream, const CopyTiming& copy, std::span<const Touch> touches);
  void defer(StreamNumber stream, DeferredWork work) { queues_.push(stream, std::move(work)); }

  // --- order ---
  EventPoint record(StreamNumber stream);
  void stream_waits(StreamNumber stream, const EventPoint& event);
  void host_waits(const EventPoint& event);
  /// Has the event happened by the host's time? A "no" costs the host a little, so that polling ends.
  bool query(const EventPoint& event);
  bool query_stream(StreamNumber stream);
  /// These two throw DeviceError for errors that earlier calls left behind, as CUDA's do, when all is done.
  void synchronize_stream(StreamNumber stream);
  void synchronize();

  // --- DeviceExtras ---
  std::string name() const override { return card().name; }
  std::uint64_t total_bytes() const override { return card().total_bytes; }
  std::uint64_t context_bytes() const override { return card().context_bytes; }
  std::uint64_t library_bytes() const override { return 0; }
  DeviceFacts facts() const override;
  std::string card_json() const override;
  void set_cap(std::uint64_t bytes) override;
  bool page_lock(void* data, std::size_t size) override;
  /// As page_unlock, for an owner that has kept the memory for as long as copies needed it.
  void release_page_lock(void* data) noexcept;
  void page_unlock(void* data) noexcept override;
  void clear_error() noexcept override;
  void enter_job() override {}  // all memory of the card is ours, and the CPU's kernels are deterministic
  void leave_job() noexcept override {}
  double host_seconds() const override;
  std::uint64_t reachable_bytes() const override { return memory_.reachable_bytes(); }
  DeviceCounters counters() const override;
  void reset_counters() override;
  void start_window() override;
  std::uint64_t window_peak() const override { return memory_.counters().window_peak; }
  void trim() override;
  void trim_to(std::uint64_t reserved_bytes) override;
  bool open_region(const RegionOptions& options) override;
  void close_region() noexcept override { memory_.close_region(); }

  FaultCounters::Counts events() const { return faults_.counts(); }

 private:
  struct Traffic {
    std::uint64_t h2d_bytes = 0;
    std::uint64_t h2d_copies = 0;
    std::uint64_t d2h_bytes = 0;
  };
  /// A block that was given back while recorded streams still used it.
  struct LateBlock {
    void* data = nullptr;
    TimeStamp until;
  };
  enum class Late { passed, all };

  void check_order(StreamNumber stream, const char* work, std::span<const Touch> touches);  // mutex_ held
  void throw_remembered();                                                                  // mutex_ held
  std::optional<MemoryUse> unlock_pages(const void* data);  // a use the host has not waited for; mutex_ held
  void finish_all();
  void free_late_blocks(Late which);   // mutex_ held
  bool wait_for_recorded(void* data);  // true: the block is freed later; mutex_ held
  void forget_block(const void* data, const SimMemory::BlockFacts& block);  // mutex_ held

  SimMemory memory_;
  PinnedRanges pinned_;
  WorkQueues queues_;
  FaultCounters faults_;
  mutable std::mutex mutex_;  // guards what follows
  Clocks clocks_;             // with the card's parameters
  RaceChecker races_;
  Traffic traffic_;
  std::vector<LateBlock> late_;
  std::string remembered_;  // an error that hits the next launch: a refused page lock, a race of a free
};

/// The counters as the JSON object that Python sees.
std::string stats_json(const DeviceCounters& counters, const FaultCounters::Counts& events);

}  // namespace lowtide::device::sim
