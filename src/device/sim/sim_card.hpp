// The simulated card: memory, clocks, page-locked ranges and deferred copies behind one door. No LibTorch
// here; the files that teach PyTorch about the card (allocators, streams, kernels, copies) call it.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "device/device_extras.hpp"
#include "device/sim/card.hpp"
#include "device/sim/clocks.hpp"
#include "device/sim/pinned_ranges.hpp"
#include "device/sim/sim_memory.hpp"
#include "device/sim/work_queues.hpp"

namespace lowtide::device::sim {

/// A recorded event: everything the stream had accepted up to then.
struct EventPoint {
  StreamNumber stream = kDefaultStream;
  std::uint64_t position = 0;
  TimeStamp time;
};

/// Thread-safe.
class SimCard final : public DeviceExtras {
 public:
  explicit SimCard(HostMemory host);

  /// Becomes this card, all counters at zero. Throws DeviceError while memory is allocated, unless it is the
  /// card already (then nothing changes).
  void open(const Card& card);
  Card card() const;

  // --- memory ---
  /// As SimMemory::allocate, and charges the host's clock when the driver had to be asked.
  void* allocate(std::size_t bytes);
  /// False when `data` is none of the card's blocks.
  bool free(void* data) noexcept { return memory_.free(data); }
  const SimMemory& memory() const { return memory_; }
  const PinnedRanges& pinned() const { return pinned_; }
  void reset_memory_peaks() { memory_.reset_peaks(); }

  // --- work, in the order the host submits it ---
  /// Before an operator runs: carries out what its stream has accepted.
  void enter_stream(StreamNumber stream) { queues_.run(stream); }
  /// An operator ran. `synchronises`: the host waits for the result.
  void count_operator(StreamNumber stream, const graph::OpCost& cost, bool synchronises);
  /// A copy over the link was accepted or made.
  void count_copy(StreamNumber stream, const CopyTiming& copy);
  void defer(StreamNumber stream, DeferredWork work) { queues_.push(stream, std::move(work)); }

  // --- order ---
  EventPoint record(StreamNumber stream);
  void stream_waits(StreamNumber stream, const EventPoint& event);
  void host_waits(const EventPoint& event);
  /// Has the event happened by the host's time? A "no" costs the host a little, so that polling ends.
  bool query(const EventPoint& event);
  bool query_stream(StreamNumber stream);
  void synchronize_stream(StreamNumber stream);
  void synchronize();

  // --- DeviceExtras ---
  std::string name() const override { return card().name; }
  std::uint64_t total_bytes() const override { return card().total_bytes; }
  std::uint64_t context_bytes() const override { return card().context_bytes; }
  std::uint64_t library_bytes() const override { return 0; }
  void set_cap(std::uint64_t bytes) override;
  bool page_lock(void* data, std::size_t size) override { return pinned_.lock(data, size); }
  void page_unlock(void* data) noexcept override;
  DeviceCounters counters() const override;
  void reset_counters() override;
  void start_window() override { memory_.start_window(); }
  std::uint64_t window_peak() const override { return memory_.counters().window_peak; }
  void trim() override { memory_.trim(); }

 private:
  struct Traffic {
    std::uint64_t h2d_bytes = 0;
    std::uint64_t h2d_copies = 0;
    std::uint64_t d2h_bytes = 0;
  };

  SimMemory memory_;
  PinnedRanges pinned_;
  WorkQueues queues_;
  mutable std::mutex mutex_;  // guards clocks_ (with the card's parameters) and traffic_
  Clocks clocks_;
  Traffic traffic_;
};

/// The counters as the JSON object that Python sees.
std::string stats_json(const DeviceCounters& counters);

}  // namespace lowtide::device::sim
