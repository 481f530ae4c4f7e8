#include "plan/visits.hpp"

#include <algorithm>
#include <limits>

namespace lowtide::plan {
namespace {

constexpr StepId kNever = std::numeric_limits<StepId>::max();
constexpr StepId kAlways = 1;
/// Thresholds between "never" and "always". More find little and cost evaluations.
constexpr std::size_t kMiddleThresholds = 2;

std::vector<StepId> split_thresholds(std::vector<StepId> pauses) {
  std::sort(pauses.begin(), pauses.end());
  pauses.erase(std::unique(pauses.begin(), pauses.end()), pauses.end());
  std::vector<StepId> thresholds{kNever};
  if (pauses.empty()) return thresholds;
  pauses.pop_back();  // none is longer than the longest
  if (pauses.size() <= kMiddleThresholds) {
    thresholds.insert(thresholds.end(), pauses.rbegin(), pauses.rend());
  } else {
    std::size_t widest = 0;
    for (std::size_t i = 1; i + 1 < pauses.size(); ++i) {
      if (double(pauses[i + 1]) * pauses[widest] > double(pauses[widest + 1]) * pauses[i]) widest = i;
    }
    const std::size_t middle = (widest + pauses.size()) / 2;
    if (middle != widest) thresholds.push_back(pauses[middle]);
    thresholds.push_back(pauses[widest]);
  }
  thresholds.push_back(kAlways);
  return thresholds;
}

}  // namespace

VisitTable::VisitTable(const ResidencyProblem& problem) : open_(problem.units.size()) {
  for (UnitId id = 0; id < problem.units.size(); ++id) {
    const Unit& unit = problem.units[id];
    pause_begin_.push_back(static_cast<std::uint32_t>(pause_steps_.size()));
    stretches_.push_back({id, unit.uses.front(), unit.uses.front(), kNoPause});
    for (const StepId use : unit.uses) {
      const StepId pause = use - stretches_.back().last;
      if (pause > kAlways && !unit.packed && !unit.state) {
        stretches_.push_back({id, use, use, static_cast<std::uint32_t>(pause_steps_.size())});
        pause_steps_.push_back(pause);
      }
      stretches_.back().last = use;
    }
  }
  pause_begin_.push_back(static_cast<std::uint32_t>(pause_steps_.size()));
  thresholds_ = split_thresholds(pause_steps_);
  std::sort(stretches_.begin(), stretches_.end(), [&](const Stretch& a, const Stretch& b) {
    if (a.first != b.first) return a.first < b.first;
    const Bytes size_a = problem.units[a.unit].bytes;
    const Bytes size_b = problem.units[b.unit].bytes;
    return size_a != size_b ? size_a > size_b : a.unit < b.unit;
  });
}

void VisitTable::list(const UnitModes& modes, std::vector<Visit>& visits) {
  visits.clear();
  for (const Stretch& stretch : stretches_) {
    if (modes.resident[stretch.unit]) continue;
    if (stretch.pause == kNoPause || modes.leaves[stretch.pause]) {
      open_[stretch.unit] = static_cast<std::uint32_t>(visits.size());
      visits.push_back({stretch.unit, stretch.first, stretch.last});
    } else {
      visits[open_[stretch.unit]].last = stretch.last;
    }
  }
}

}  // namespace lowtide::plan
