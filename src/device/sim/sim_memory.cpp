#include "device/sim/sim_memory.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/checked_math.hpp"
#include "lowtide/error.hpp"

namespace lowtide::device::sim {

void SimMemory::check_room(std::uint64_t bytes, std::uint64_t rounded) const {
  if (limits_.max_allocation_bytes != 0 && bytes > limits_.max_allocation_bytes) {
    throw OutOfBudget(
        "simulated card: an allocation of " + std::to_string(bytes) + " bytes exceeds the card's limit of " +
            std::to_string(limits_.max_allocation_bytes) + " for a single one; ask for smaller pieces",
        rounded, limits_.max_allocation_bytes);
  }
  if (rounded > saturating_sub(limits_.cap_bytes, counters_.used)) {
    throw OutOfBudget("simulated card: out of memory: want " + std::to_string(rounded) + " bytes, used " +
                          std::to_string(counters_.used) + ", cap " + std::to_string(limits_.cap_bytes) +
                          "; free memory or raise the cap",
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

SimMemory::Block SimMemory::allocate(std::size_t bytes) {
  Block block;
  if (bytes == 0) return block;
  const std::uint64_t rounded = round_up(bytes, kGranule);
  bool poison = false;
  {
    const std::lock_guard lock(mutex_);
    check_room(bytes, rounded);
    block.data = host_.allocate(bytes);
    try {
      sizes_.emplace(block.data, bytes);
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

bool SimMemory::free(void* data) noexcept {
  std::size_t bytes = 0;
  bool poison = false;
  {
    const std::lock_guard lock(mutex_);
    const auto found = sizes_.find(data);
    if (found == sizes_.end()) return false;
    bytes = found->second;
    sizes_.erase(found);
    --counters_.blocks;
    counters_.used -= round_up(bytes, kGranule);
    poison = limits_.poison;
  }
  if (poison) std::memset(data, kFreedByte, bytes);
  host_.free(data);
  return true;
}

bool SimMemory::owns(const void* data) const {
  const std::lock_guard lock(mutex_);
  return sizes_.contains(data);
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
  if (!sizes_.empty()) return false;
  limits_ = limits;
  counters_ = {};
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

void SimMemory::trim() {
  const std::lock_guard lock(mutex_);
  counters_.reserved = counters_.used;
}

}  // namespace lowtide::device::sim
