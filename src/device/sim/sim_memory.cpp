#include "device/sim/sim_memory.hpp"

#include <algorithm>
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

bool SimMemory::take(std::uint64_t rounded) {
  ++counters_.blocks;
  counters_.used += rounded;
  counters_.peak = std::max(counters_.peak, counters_.used);
  counters_.window_peak = std::max(counters_.window_peak, counters_.used);
  if (counters_.used <= counters_.reserved) return false;
  counters_.reserved = counters_.used;
  counters_.reserved_peak = std::max(counters_.reserved_peak, counters_.reserved);
  ++counters_.driver_allocs;
  return true;
}

SimMemory::Block SimMemory::allocate(std::size_t bytes, StreamNumber stream) {
  Block block;
  if (bytes == 0) return block;
  const std::uint64_t rounded = round_up(bytes, kGranule);
  bool poison = false;
  {
    const std::lock_guard lock(mutex_);
    check_room(bytes, rounded);
    block.data = host_.allocate(bytes);
    try {
      blocks_.emplace(block.data, Entry{{bytes, stream, 0}});
    } catch (...) {
      host_.free(block.data);
      throw;
    }
    block.asked_driver = take(rounded);
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
    facts = found->second.facts;
    --counters_.blocks;
    counters_.used -= round_up(facts.bytes, kGranule);
    if (found->second.holds != 0) {
      found->second.freed = true;
      return facts;
    }
    blocks_.erase(found);
    poison = limits_.poison;
  }
  if (poison) std::memset(data, kFreedByte, facts.bytes);
  host_.free(data);
  return facts;
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
    if (limits_.poison) std::memset(data, kFreedByte, found->second.facts.bytes);
    blocks_.erase(found);
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
  if (counters_.blocks != 0) return false;
  limits_ = limits;
  counters_ = {};
  other_program_ = 0;
  counters_.used = counters_.peak = counters_.window_peak = counters_.reserved = counters_.reserved_peak =
      limits.context_bytes;
  return true;
}

void SimMemory::set_cap(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  limits_.cap_bytes = bytes;
  counters_.reserved = std::max(counters_.used, std::min(counters_.reserved, bytes));
}

void SimMemory::reset_peaks() {
  const std::lock_guard lock(mutex_);
  counters_.peak = counters_.used;
  counters_.window_peak = counters_.used;
  counters_.reserved_peak = counters_.reserved;
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

bool SimMemory::trim() {
  const std::lock_guard lock(mutex_);
  return std::exchange(counters_.reserved, counters_.used) != counters_.used;
}

}  // namespace lowtide::device::sim
