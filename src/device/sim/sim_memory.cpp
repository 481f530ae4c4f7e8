#include "device/sim/sim_memory.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>

#include "base/checked_math.hpp"
#include "lowtide/error.hpp"

namespace lowtide::device::sim {

std::uint64_t SimMemory::room() const {
  const std::uint64_t ours = std::min(limits_.cap_bytes, saturating_sub(limits_.total_bytes, other_program_));
  return saturating_sub(ours, counters_.used);
}

void SimMemory::check_room(std::uint64_t bytes, std::uint64_t rounded) const {
  if (limits_.max_allocation_bytes != 0 && bytes > limits_.max_allocation_bytes) {
    throw OutOfBudget(
        "simulated card: an allocation of " + std::to_string(bytes) + " bytes exceeds the card's limit of " +
            std::to_string(limits_.max_allocation_bytes) + " for a single one; ask for smaller pieces",
        rounded, limits_.max_allocation_bytes);
  }
  if (rounded > room()) {
    const std::string others =
        other_program_ == 0 ? "" : ", other programs hold " + std::to_string(other_program_);
    throw OutOfBudget("simulated card: out of memory: want " + std::to_string(rounded) + " bytes, used " +
                          std::to_string(counters_.used) + ", cap " + std::to_string(limits_.cap_bytes) +
                          others + "; free memory or raise the cap",
                      rounded, limits_.cap_bytes);
  }
}

SimMemory::~SimMemory() {
  if (region_.base != nullptr) host_.free(region_.base);
}

/// The overflow region grows as the strategy says, the rest by what is asked for.
std::uint64_t SimMemory::reservation(const Part& part) const {
  if (&part != &job_ || growth_ == ArenaGrowth::same_as_requested) return part.used;
  const std::uint64_t overflow = part.used - region_.bytes;
  return region_.bytes + (overflow == 0 ? 0 : std::bit_ceil(overflow));
}

void SimMemory::count_reserved() {
  counters_.reserved = limits_.context_bytes + kept_.reserved + job_.reserved;
  counters_.reserved_peak = std::max(counters_.reserved_peak, counters_.reserved);
}

void SimMemory::count_live() {
  counters_.live_peak = std::max(counters_.live_peak, counters_.used - region_.bytes + region_.live);
}

bool SimMemory::take(Part& part, std::uint64_t rounded) {
  const std::uint64_t limit = counters_.used + room();
  part.used += rounded;
  counters_.used += rounded;
  counters_.peak = std::max(counters_.peak, counters_.used);
  counters_.window_peak = std::max(counters_.window_peak, counters_.used);
  if (part.used <= part.reserved) return false;
  Part& other = &part == &job_ ? kept_ : job_;
  const std::uint64_t wanted = reservation(part);
  if (limits_.context_bytes + wanted + other.reserved > limit)
    other.reserved = other.used;  // idle pages move
  part.reserved =
      std::max(part.used, std::min(wanted, saturating_sub(limit, limits_.context_bytes + other.reserved)));
  count_reserved();
  ++counters_.driver_allocs;
  return true;
}

SimMemory::Block SimMemory::enter_region(std::size_t bytes, StreamNumber stream,
                                         const Placement::Answer& answer) {
  Block block{.data = region_.base + answer.offset};
  Entry entry{.facts = {bytes, stream, 0}};
  entry.of_job = entry.in_region = true;
  blocks_.emplace(block.data, entry);
  ++counters_.blocks;
  ++region_.blocks;
  region_.live += round_up(bytes, kGranule);
  count_live();
  return block;
}

SimMemory::Block SimMemory::allocate(std::size_t bytes, StreamNumber stream, Occupied occupied) {
  Block block;
  if (bytes == 0) return block;
  const std::uint64_t rounded = round_up(bytes, kGranule);
  bool poison = false;
  {
    const std::lock_guard lock(mutex_);
    Placement::Answer answer;
    if (placement_ != nullptr) answer = placement_->place(rounded);
    if (answer.kind == Placement::Kind::occupied && occupied == Occupied::report) {
      block.occupied = true;
      return block;
    }
    const bool of_job = answer.kind != Placement::Kind::foreign;
    if (answer.kind == Placement::Kind::planned) {
      block = enter_region(bytes, stream, answer);
    } else {
      check_room(bytes, rounded);
      block.data = host_.allocate(bytes);
      try {
        Entry entry{.facts = {bytes, stream, 0}};
        entry.of_job = of_job;
        blocks_.emplace(block.data, entry);
      } catch (...) {
        host_.free(block.data);
        throw;
      }
      ++counters_.blocks;
      block.asked_driver = take(of_job ? job_ : kept_, rounded);
      count_live();
    }
    if (of_job) placement_->answered(block.data, rounded, answer);
    poison = limits_.poison;
  }
  if (poison) std::memset(block.data, kFreshByte, bytes);
  return block;
}

std::optional<SimMemory::BlockFacts> SimMemory::free(void* data) noexcept {
  BlockFacts facts;
  bool poison = false;
  {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(data);
    if (found == blocks_.end() || found->second.freed) return std::nullopt;
    Entry& entry = found->second;
    facts = entry.facts;
    const std::uint64_t rounded = round_up(facts.bytes, kGranule);
    --counters_.blocks;
    if (entry.in_region) {
      region_.live -= rounded;
    } else {
      counters_.used -= rounded;
      (entry.of_job ? job_ : kept_).used -= rounded;
      if (entry.of_job && placement_ != nullptr) placement_->given_back(data);
    }
    if (entry.holds != 0) {
      entry.freed = true;
      return facts;
    }
    const bool in_region = entry.in_region;
    blocks_.erase(found);
    if (in_region) {
      leave_region(data, facts.bytes);
      return facts;
    }
    poison = limits_.poison;
  }
  if (poison) std::memset(data, kFreedByte, facts.bytes);
  host_.free(data);
  return facts;
}

/// A block's content is gone: its place can be taken again, and an empty region that is closing goes.
void SimMemory::leave_region(const void* data, std::uint64_t bytes) noexcept {
  const auto offset = static_cast<const std::byte*>(data) - region_.base;
  if (limits_.poison) std::memset(region_.base + offset, kFreedByte, bytes);
  --region_.blocks;
  if (placement_ != nullptr) placement_->given_back(data);
  if (region_.closing && region_.blocks == 0) release_region();
}

void SimMemory::release_region() noexcept {
  job_.used -= region_.bytes;
  counters_.used -= region_.bytes;
  region_.bytes = 0;
  region_.closing = false;
}

bool SimMemory::open_region(const RegionOptions& options) {
  const std::lock_guard lock(mutex_);
  if (region_.bytes != 0) throw Error("internal: the card's region for planned places is open already");
  const std::uint64_t bytes = round_up(options.bytes, kGranule);
  bool asked_driver = false;
  if (bytes != 0) {
    check_room(bytes, bytes);
    if (region_.capacity < bytes) {
      if (region_.base != nullptr) host_.free(region_.base);
      region_.capacity = 0;
      region_.base = nullptr;
      region_.base = static_cast<std::byte*>(host_.allocate(bytes));
      region_.capacity = bytes;
    }
    region_.bytes = bytes;
  }
  placement_ = options.placement;
  growth_ = options.growth;
  if (bytes != 0) asked_driver = take(job_, bytes);
  return asked_driver;
}

void SimMemory::close_region() noexcept {
  const std::lock_guard lock(mutex_);
  placement_ = nullptr;
  if (region_.bytes == 0) return;
  region_.closing = true;
  if (region_.blocks == 0) release_region();
}

std::optional<SimMemory::BlockFacts> SimMemory::find(const void* data) const {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(data);
  if (found == blocks_.end() || found->second.freed) return std::nullopt;
  return found->second.facts;
}

void SimMemory::record_stream(const void* data, StreamNumber stream) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(data);
  if (found == blocks_.end()) return;
  found->second.facts.recorded |= std::uint64_t{1} << stream;
  any_recorded_ = true;
}

bool SimMemory::hold(const void* data) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(data);
  if (found == blocks_.end() || found->second.freed) return false;
  ++found->second.holds;
  return true;
}

void SimMemory::let_go(void* data) noexcept {
  {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(data);
    if (found == blocks_.end() || --found->second.holds != 0 || !found->second.freed) return;
    const Entry entry = found->second;
    blocks_.erase(found);
    if (entry.in_region) {
      leave_region(data, entry.facts.bytes);
      return;
    }
    if (limits_.poison) std::memset(data, kFreedByte, entry.facts.bytes);
  }
  host_.free(data);
}

MemoryCounters SimMemory::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

std::uint64_t SimMemory::cap() const {
  const std::lock_guard lock(mutex_);
  return limits_.cap_bytes;
}

bool SimMemory::reopen(const MemoryLimits& limits) {
  const std::lock_guard lock(mutex_);
  if (counters_.blocks != 0 || region_.bytes != 0) return false;
  limits_ = limits;
  counters_ = {};
  other_program_ = 0;
  kept_ = job_ = {};
  counters_.used = counters_.peak = counters_.window_peak = counters_.reserved = counters_.reserved_peak =
      counters_.live_peak = limits.context_bytes;
  return true;
}

void SimMemory::set_cap(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  limits_.cap_bytes = bytes;
  give_back(bytes);
}

void SimMemory::reset_peaks() {
  const std::lock_guard lock(mutex_);
  counters_.peak = counters_.used;
  counters_.window_peak = counters_.used;
  counters_.reserved_peak = counters_.reserved;
  counters_.live_peak = counters_.used - region_.bytes + region_.live;
  counters_.driver_allocs = 0;
}

void SimMemory::start_window() {
  const std::lock_guard lock(mutex_);
  counters_.window_peak = counters_.used;
}

void SimMemory::set_other_program(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  other_program_ = bytes;
}

std::uint64_t SimMemory::reachable_bytes() const {
  const std::lock_guard lock(mutex_);
  return saturating_sub(limits_.total_bytes, other_program_);
}

std::uint64_t SimMemory::free_bytes() const {
  const std::lock_guard lock(mutex_);
  return room();
}

bool SimMemory::trim(std::uint64_t reserved) {
  const std::lock_guard lock(mutex_);
  if (region_.bytes == 0 && region_.base != nullptr && reserved == 0) {
    host_.free(region_.base);
    region_.base = nullptr;
    region_.capacity = 0;
  }
  return give_back(reserved);
}

/// What is reserved beyond `reserved` and not used. False where there is nothing of it.
bool SimMemory::give_back(std::uint64_t reserved) {
  const std::uint64_t before = counters_.reserved;
  for (Part* part : {&job_, &kept_}) {
    const std::uint64_t too_much = saturating_sub(counters_.reserved, reserved);
    part->reserved -= std::min(part->reserved - part->used, too_much);
    count_reserved();
  }
  return counters_.reserved != before;
}

}  // namespace lowtide::device::sim
