#include "memory/pin_budget.hpp"

#include <algorithm>
#include <limits>

#include "base/checked_math.hpp"
#include "base/host_facts.hpp"

namespace lowtide::memory {

Bytes pin_budget(const device::DeviceExtras& extras) {
  Bytes budget = std::numeric_limits<Bytes>::max();
  if (const auto available = available_ram_bytes()) budget = *available / 2;
  if (const auto limit = extras.facts().pin_limit_bytes)
    budget = std::min(budget, saturating_sub(*limit, extras.counters().pinned_bytes));
  return budget;
}

}  // namespace lowtide::memory
