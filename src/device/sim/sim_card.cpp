#include "device/sim/sim_card.hpp"

#include <nlohmann/json.hpp>
#include <utility>

#include "lowtide/error.hpp"

namespace lowtide::device::sim {
namespace {

MemoryLimits limits_of(const Card& card) {
  return {.context_bytes = card.context_bytes,
          .total_bytes = card.total_bytes,
          .cap_bytes = card.total_bytes,
          .max_allocation_bytes = card.max_allocation_bytes,
          .poison = card.poison};
}

std::string describe(const Touch& touch) {
  std::string text = touch.writes ? "writes " : "reads ";
  if (*touch.argument != '\0') {
    text += std::string("argument '") + touch.argument + "'";
  } else {
    text += touch.writes ? "its result" : "its source";
  }
  text += " (" + std::string(graph::dtype_name(touch.shape.dtype)) + " [";
  for (std::size_t d = 0; d < touch.shape.sizes.size(); ++d)
    text += (d == 0 ? "" : ", ") + std::to_string(touch.shape.sizes[d]);
  return text + "])";
}

/// Who is to wait for what.
std::string missing_edge(const std::string& waiter, const MemoryUse& earlier) {
  return waiter + " must wait for an event that is recorded on " + RaceChecker::name(earlier.stream) +
         " after that";
}

}  // namespace

SimCard::SimCard(HostMemory host) : memory_(host) {
  memory_.reopen(limits_of(clocks_.card()));
}

void SimCard::open(const Card& card) {
  finish_all();
  if (!memory_.reopen(limits_of(card))) {
    if (card == this->card()) return;
    const MemoryCounters now = memory_.counters();
    throw DeviceError("simulated card: cannot become '" + card.name + "' while " +
                      std::to_string(now.blocks) + " allocations live on '" + name() + "'; free them first");
  }
  {
    const std::lock_guard lock(mutex_);
    clocks_.set_card(card);
    traffic_ = {};
    races_.restart(card.race_check);
    remembered_.clear();
  }
  inject(card.faults);
}

Card SimCard::card() const {
  const std::lock_guard lock(mutex_);
  return clocks_.card();
}

void SimCard::inject(const Faults& faults) {
  faults_.set(faults);
  memory_.set_other_program(faults_.other_program_bytes());
}

// --- memory ---

void* SimCard::allocate(std::size_t bytes, StreamNumber stream) {
  if (bytes == 0) return nullptr;
  const bool fails = faults_.allocation_fails();
  if (faults_.has_other_program()) memory_.set_other_program(faults_.other_program_bytes());
  if (fails)
    throw OutOfBudget("simulated card: out of memory: this allocation of " + std::to_string(bytes) +
                          " bytes was told to fail",
                      bytes, memory_.cap());
  std::unique_lock lock(mutex_);
  free_late_blocks(Late::passed);
  SimMemory::Block block;
  try {
    block = memory_.allocate(bytes, stream, SimMemory::Occupied::report);
    if (block.occupied) {  // the place is the same stream's: what it has accepted comes first
      lock.unlock();
      queues_.run(stream);
      lock.lock();
      block = memory_.allocate(bytes, stream);
    }
  } catch (const OutOfBudget&) {
    free_late_blocks(Late::all);
    block = memory_.allocate(bytes, stream);
  }
  if (block.asked_driver) clocks_.driver_alloc();
  races_.allocated({block.data, bytes}, stream);
  return block.data;
}

void SimCard::forget_block(const void* data, const SimMemory::BlockFacts& block) {
  const auto conflict = races_.released({data, block.bytes}, block.stream, block.recorded);
  if (conflict && remembered_.empty()) {
    remembered_ = "race: memory of " + std::to_string(block.bytes) + " bytes, allocated on " +
                  RaceChecker::name(block.stream) + ", was given back, but this is not ordered after " +
                  RaceChecker::describe(*conflict) + ": " +
                  missing_edge(RaceChecker::name(block.stream), *conflict) +
                  ", or that stream must be recorded for it (record_stream)";
  }
}

bool SimCard::wait_for_recorded(void* data) {
  const std::optional<SimMemory::BlockFacts> block = memory_.find(data);
  if (!block) return false;
  std::optional<TimeStamp> until;
  for (StreamNumber stream = 0; block->recorded >> stream != 0; ++stream) {
    const bool recorded = (block->recorded >> stream & 1) != 0;
    if (!recorded || stream == block->stream || clocks_.stream_idle(stream)) continue;
    const TimeStamp stamp = clocks_.stamp(stream);
    if (!until || stamp.seconds > until->seconds) until = stamp;
  }
  if (until) late_.push_back({data, *until});
  return until.has_value();
}

bool SimCard::free(void* data) noexcept {
  const std::lock_guard lock(mutex_);
  if (memory_.any_recorded() && wait_for_recorded(data)) return true;
  // The address cannot be handed out again before the checker has forgotten it: that takes the lock, too.
  const std::optional<SimMemory::BlockFacts> block = memory_.free(data);
  if (block) forget_block(data, *block);
  return block.has_value();
}

void SimCard::free_late_blocks(Late which) {
  if (late_.empty()) return;
  std::erase_if(late_, [&](const LateBlock& late) {
    if (which == Late::all) clocks_.host_waits(late.until);
    if (!clocks_.passed(late.until)) return false;
    if (const auto block = memory_.free(late.data)) forget_block(late.data, *block);
    return true;
  });
}

// --- work ---

void SimCard::enter_stream(StreamNumber stream) {
  if (faults_.shuffles()) queues_.run_some(faults_.next_random());
  queues_.run(stream);
}

void SimCard::throw_remembered() {
  if (!remembered_.empty()) throw DeviceError("simulated card: " + std::exchange(remembered_, {}));
}

void SimCard::check_order(StreamNumber stream, const char* work, std::span<const Touch> touches) {
  MemoryUse use{.stream = stream, .tick = races_.submit(stream), .work = work};
  std::string problem;
  for (const Touch& touch : touches) {
    use.writes = touch.writes;
    use.argument = touch.argument;
    const std::optional<MemoryUse> earlier =
        touch.by_host ? races_.host_touches(touch.range, touch.writes) : races_.touch(touch.range, use);
    if (!earlier || !problem.empty()) continue;
    const std::string here = RaceChecker::name(stream);
    problem = "race: " + std::string(work) + " on " + here + " " + describe(touch) +
              ", but this is not ordered after " + RaceChecker::describe(*earlier) + ": " +
              missing_edge(touch.by_host ? "the host" : here, *earlier);
  }
  throw_remembered();
  if (!problem.empty()) throw DeviceError("simulated card: " + problem);
}

void SimCard::account_operator(StreamNumber stream, const char* name, const graph::OpCost& cost,
                               bool synchronises, std::span<const Touch> touches) {
  const std::lock_guard lock(mutex_);
  clocks_.launch();
  if (cost.view) return;
  clocks_.kernel(stream, graph::op_seconds(cost, clocks_.card().rates));
  check_order(stream, name, touches);
  if (synchronises) {
    clocks_.host_waits_for_stream(stream);
    races_.host_waits(races_.clock(stream));
  }
}

void SimCard::check_copy() {
  if (faults_.copy_fails()) throw DeviceError("simulated card: this copy over the link was told to fail");
}

void SimCard::account_copy(StreamNumber stream, const CopyTiming& copy, std::span<const Touch> touches) {
  const std::lock_guard lock(mutex_);
  clocks_.copy(stream, copy);
  const bool to_card = copy.direction == Direction::to_card;
  if (to_card) {
    traffic_.h2d_bytes += copy.bytes;
    ++traffic_.h2d_copies;
  } else {
    traffic_.d2h_bytes += copy.bytes;
  }
  check_order(stream, to_card ? "a copy to the card" : "a copy to the host", touches);
  if (copy.blocking) races_.host_waits(races_.clock(stream));
}

// --- order ---
// What becomes known is noted before the queues run: work that is carried out may free memory.

EventPoint SimCard::record(StreamNumber stream) {
  const std::uint64_t position = queues_.accepted(stream);
  const std::lock_guard lock(mutex_);
  return {stream, position, clocks_.stamp(stream), races_.clock(stream)};
}

void SimCard::stream_waits(StreamNumber stream, const EventPoint& event) {
  if (stream == event.stream) return;  // a stream is always behind its own events
  if (faults_.wait_is_forgotten()) return;
  {
    const std::lock_guard lock(mutex_);
    clocks_.stream_waits(stream, event.time);
    races_.stream_waits(stream, event.known);
  }
  queues_.run_until(event.stream, event.position);
}

void SimCard::host_waits(const EventPoint& event) {
  {
    const std::lock_guard lock(mutex_);
    clocks_.host_waits(event.time);
    races_.host_waits(event.known);
  }
  queues_.run_until(event.stream, event.position);
}

bool SimCard::query(const EventPoint& event) {
  {
    const std::lock_guard lock(mutex_);
    if (!clocks_.passed(event.time)) {
      clocks_.poll();
      return false;
    }
    races_.host_waits(event.known);
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
    races_.host_waits(races_.clock(stream));
  }
  queues_.run(stream);
  return true;
}

void SimCard::synchronize_stream(StreamNumber stream) {
  {
    const std::lock_guard lock(mutex_);
    clocks_.host_waits_for_stream(stream);
    races_.host_waits(races_.clock(stream));
  }
  queues_.run(stream);
  const std::lock_guard lock(mutex_);
  throw_remembered();
}

void SimCard::synchronize() {
  finish_all();
  const std::lock_guard lock(mutex_);
  throw_remembered();
}

void SimCard::finish_all() {
  {
    const std::lock_guard lock(mutex_);
    clocks_.host_waits_for_all();
    races_.host_waits_for_all();
  }
  queues_.run_all();
  const std::lock_guard lock(mutex_);
  free_late_blocks(Late::passed);
}

// --- DeviceExtras ---

DeviceFacts SimCard::facts() const {
  return {.driver = "simulated", .free_bytes = memory_.free_bytes()};
}

std::string SimCard::card_json() const {
  return format_card(card());
}

void SimCard::set_cap(std::uint64_t bytes) {
  const Card now = card();
  if (bytes > now.total_bytes) {
    throw DeviceError("simulated card '" + now.name + "': a cap of " + std::to_string(bytes) +
                      " bytes exceeds the card's " + std::to_string(now.total_bytes) + "; lower the cap");
  }
  memory_.set_cap(bytes);
}

bool SimCard::page_lock(void* data, std::size_t size) {
  const bool locked = !faults_.page_lock_fails() && pinned_.lock(data, size);
  if (!locked) {
    const std::lock_guard lock(mutex_);
    remembered_ = "this launch fails because of an earlier page lock that was refused: clear the error then";
  }
  return locked;
}

std::optional<MemoryUse> SimCard::unlock_pages(const void* data) {
  const std::size_t bytes = pinned_.size_at(data);
  if (!pinned_.unlock(data)) return std::nullopt;
  return races_.retired({data, bytes});
}

void SimCard::page_unlock(void* data) noexcept {
  const std::lock_guard lock(mutex_);
  const auto conflict = unlock_pages(data);
  if (conflict && remembered_.empty()) {
    remembered_ = "race: page-locked memory was unlocked, but this is not ordered after " +
                  RaceChecker::describe(*conflict) + ": " + missing_edge("the host", *conflict);
  }
}

void SimCard::release_page_lock(void* data) noexcept {
  const std::lock_guard lock(mutex_);
  unlock_pages(data);
}

void SimCard::clear_error() noexcept {
  const std::lock_guard lock(mutex_);
  remembered_.clear();
}

double SimCard::host_seconds() const {
  const std::lock_guard lock(mutex_);
  return clocks_.host();
}

DeviceCounters SimCard::counters() const {
  const MemoryCounters memory = memory_.counters();
  DeviceCounters counters;
  counters.used_bytes = memory.used;
  counters.peak_bytes = memory.peak;
  counters.reserved_bytes = memory.reserved;
  counters.reserved_peak_bytes = memory.reserved_peak;
  counters.live_peak_bytes = memory.live_peak;
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
  finish_all();
  memory_.reset_peaks();
  const std::lock_guard lock(mutex_);
  clocks_.reset();
  traffic_ = {};
}

void SimCard::start_window() {
  const std::lock_guard lock(mutex_);
  free_late_blocks(Late::passed);
  memory_.start_window();
}

void SimCard::trim() {
  const std::lock_guard lock(mutex_);
  free_late_blocks(Late::all);
  if (memory_.trim()) clocks_.driver_free();
}

void SimCard::trim_to(std::uint64_t reserved_bytes) {
  const std::lock_guard lock(mutex_);
  if (memory_.trim(reserved_bytes)) clocks_.driver_free();
}

bool SimCard::open_region(const RegionOptions& options) {
  const std::lock_guard lock(mutex_);
  bool asked_driver = false;
  try {
    asked_driver = memory_.open_region(options);
  } catch (const OutOfBudget&) {
    free_late_blocks(Late::all);
    asked_driver = memory_.open_region(options);
  }
  if (asked_driver) clocks_.driver_alloc();
  return true;
}

std::string stats_json(const DeviceCounters& counters, const FaultCounters::Counts& events) {
  return nlohmann::ordered_json{{"used_bytes", counters.used_bytes},
                                {"peak_bytes", counters.peak_bytes},
                                {"reserved_bytes", counters.reserved_bytes},
                                {"h2d_bytes", counters.h2d_bytes},
                                {"h2d_copies", counters.h2d_copies},
                                {"d2h_bytes", counters.d2h_bytes},
                                {"modelled_s", counters.modelled_s},
                                {"compute_s", counters.compute_s},
                                {"link_s", counters.link_s},
                                {"stall_s", counters.stall_s},
                                {"allocations", events.allocations},
                                {"copies", events.copies},
                                {"page_locks", events.page_locks},
                                {"waits", events.waits}}
      .dump();
}

}  // namespace lowtide::device::sim
