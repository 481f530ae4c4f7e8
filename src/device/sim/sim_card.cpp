#include "device/sim/sim_card.hpp"

#include <nlohmann/json.hpp>

#include "lowtide/error.hpp"

namespace lowtide::device::sim {
namespace {

MemoryLimits limits_of(const Card& card) {
  return {.context_bytes = card.context_bytes,
          .cap_bytes = card.total_bytes,
          .max_allocation_bytes = card.max_allocation_bytes,
          .poison = card.poison};
}

}  // namespace

SimCard::SimCard(HostMemory host) : memory_(host) {
  memory_.reopen(limits_of(clocks_.card()));
}

void SimCard::open(const Card& card) {
  queues_.run_all();
  if (!memory_.reopen(limits_of(card))) {
    if (card == this->card()) return;
    const MemoryCounters now = memory_.counters();
    throw DeviceError("simulated card: cannot become '" + card.name + "' while " +
                      std::to_string(now.blocks) + " allocations live on '" + name() + "'; free them first");
  }
  const std::lock_guard lock(mutex_);
  clocks_.set_card(card);
  traffic_ = {};
}

Card SimCard::card() const {
  const std::lock_guard lock(mutex_);
  return clocks_.card();
}

void* SimCard::allocate(std::size_t bytes) {
  const SimMemory::Block block = memory_.allocate(bytes);
  if (block.asked_driver) {
    const std::lock_guard lock(mutex_);
    clocks_.driver_alloc();
  }
  return block.data;
}

void SimCard::count_operator(StreamNumber stream, const graph::OpCost& cost, bool synchronises) {
  const std::lock_guard lock(mutex_);
  clocks_.launch();
  if (!cost.view) clocks_.kernel(stream, graph::op_seconds(cost, clocks_.card().rates));
  if (synchronises) clocks_.host_waits_for_stream(stream);
}

void SimCard::count_copy(StreamNumber stream, const CopyTiming& copy) {
  const std::lock_guard lock(mutex_);
  clocks_.copy(stream, copy);
  if (copy.direction == Direction::to_card) {
    traffic_.h2d_bytes += copy.bytes;
    ++traffic_.h2d_copies;
  } else {
    traffic_.d2h_bytes += copy.bytes;
  }
}

EventPoint SimCard::record(StreamNumber stream) {
  const std::uint64_t position = queues_.accepted(stream);
  const std::lock_guard lock(mutex_);
  return {stream, position, clocks_.stamp(stream)};
}

void SimCard::stream_waits(StreamNumber stream, const EventPoint& event) {
  if (stream == event.stream) return;  // a stream is always behind its own events
  queues_.run_until(event.stream, event.position);
  const std::lock_guard lock(mutex_);
  clocks_.stream_waits(stream, event.time);
}

void SimCard::host_waits(const EventPoint& event) {
  queues_.run_until(event.stream, event.position);
  const std::lock_guard lock(mutex_);
  clocks_.host_waits(event.time);
}

bool SimCard::query(const EventPoint& event) {
  {
    const std::lock_guard lock(mutex_);
    if (!clocks_.passed(event.time)) {
      clocks_.poll();
      return false;
    }
  }
  queues_.run_until(event.stream, event.position);
  return true;
}

bool SimCard::query_stream(StreamNumber stream) {
  {
    const std::lock_guard lock(mutex_);
    if (!clocks_.stream_idle(stream)) {
      clocks_.poll();
      return false;
    }
  }
  queues_.run(stream);
  return true;
}

void SimCard::synchronize_stream(StreamNumber stream) {
  queues_.run(stream);
  const std::lock_guard lock(mutex_);
  clocks_.host_waits_for_stream(stream);
}

void SimCard::synchronize() {
  queues_.run_all();
  const std::lock_guard lock(mutex_);
  clocks_.host_waits_for_all();
}

void SimCard::set_cap(std::uint64_t bytes) {
  const Card now = card();
  if (bytes > now.total_bytes) {
    throw DeviceError("simulated card '" + now.name + "': a cap of " + std::to_string(bytes) +
                      " bytes exceeds the card's " + std::to_string(now.total_bytes) + "; lower the cap");
  }
  memory_.set_cap(bytes);
}

void SimCard::page_unlock(void* data) noexcept {
  pinned_.unlock(data);
}

DeviceCounters SimCard::counters() const {
  const MemoryCounters memory = memory_.counters();
  DeviceCounters counters;
  counters.used_bytes = memory.used;
  counters.peak_bytes = memory.peak;
  counters.reserved_bytes = memory.reserved;
  counters.reserved_peak_bytes = memory.reserved_peak;
  counters.driver_allocs = memory.driver_allocs;
  counters.pinned_bytes = pinned_.bytes();
  const std::lock_guard lock(mutex_);
  counters.h2d_bytes = traffic_.h2d_bytes;
  counters.h2d_copies = traffic_.h2d_copies;
  counters.d2h_bytes = traffic_.d2h_bytes;
  counters.modelled_s = clocks_.latest();
  counters.compute_s = clocks_.compute_busy();
  counters.link_s = clocks_.link_busy();
  counters.stall_s = clocks_.stalled();
  return counters;
}

void SimCard::reset_counters() {
  queues_.run_all();
  memory_.reset_peaks();
  const std::lock_guard lock(mutex_);
  clocks_.reset();
  traffic_ = {};
}

std::string stats_json(const DeviceCounters& counters) {
  return nlohmann::ordered_json{{"used_bytes", counters.used_bytes},
                                {"peak_bytes", counters.peak_bytes},
                                {"reserved_bytes", counters.reserved_bytes},
                                {"h2d_bytes", counters.h2d_bytes},
                                {"h2d_copies", counters.h2d_copies},
                                {"d2h_bytes", counters.d2h_bytes},
                                {"modelled_s", counters.modelled_s},
                                {"compute_s", counters.compute_s},
                                {"link_s", counters.link_s},
                                {"stall_s", counters.stall_s}}
      .dump();
}

}  // namespace lowtide::device::sim
