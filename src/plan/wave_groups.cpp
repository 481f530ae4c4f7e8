#include "plan/wave_groups.hpp"

#include <algorithm>
#include <numeric>

namespace lowtide::plan {
namespace {

/// A step before which the walk may be cut: new weights are first needed there.
struct Cut {
  StepId step = 0;
  Bytes weights = 0;  // that are first used from here to the next cut
  Bytes alive = 0;    // activations that wait at the cut
};

std::vector<Cut> possible_cuts(const Packing& packing, const JobMemory& job) {
  std::vector<Cut> cuts{{.step = 0, .weights = 0, .alive = job.inputs}};
  for (const Unit& unit : packing.units) {  // in order of first use
    const StepId first = unit.uses.front();
    if (first > cuts.back().step) cuts.push_back({first, 0, job.steps[first - 1].after});
    cuts.back().weights += unit.bytes;
  }
  return cuts;
}

/// Only cuts at which at most `alive` bytes wait; weights of those left out count to the one before.
std::vector<Cut> keep_cheap(const std::vector<Cut>& cuts, Bytes alive) {
  std::vector<Cut> kept{cuts.front()};
  for (std::size_t i = 1; i < cuts.size(); ++i) {
    if (cuts[i].alive <= alive) {
      kept.push_back(cuts[i]);
    } else {
      kept.back().weights += cuts[i].weights;
    }
  }
  return kept;
}

/// Groups of at most `target` bytes of weights (or one cut's), each ended at the cheapest cut of its second
/// half.
std::vector<StepGroup> merge(const std::vector<Cut>& cuts, Bytes target, StepId steps) {
  std::vector<StepGroup> groups;
  for (std::size_t begin = 0; begin < cuts.size();) {
    std::size_t end = begin + 1;
    std::size_t half = end;  // first cut behind half of the target
    Bytes sum = cuts[begin].weights;
    for (; end < cuts.size() && sum + cuts[end].weights <= target; ++end) {
      if (2 * sum < target) half = end + 1;
      sum += cuts[end].weights;
    }
    std::size_t best = end;
    for (std::size_t i = end; i-- > half && end < cuts.size();) {
      if (cuts[i].alive < cuts[best].alive) best = i;
    }
    groups.push_back({cuts[begin].step, best < cuts.size() ? cuts[best].step : steps});
    begin = best;
  }
  return groups;
}

}  // namespace

Bytes JobMemory::peak() const {
  Bytes most = inputs;
  for (const StepBytes& step : steps) most = std::max(most, step.peak);
  return most;
}

JobMemory largest_of(const JobMemory& a, const JobMemory& b) {
  JobMemory most = a;
  most.inputs = std::max(a.inputs, b.inputs);
  for (std::size_t i = 0; i < most.steps.size(); ++i) {
    most.steps[i].peak = std::max(a.steps[i].peak, b.steps[i].peak);
    most.steps[i].after = std::max(a.steps[i].after, b.steps[i].after);
  }
  return most;
}

Bytes spilled_bytes(const JobMemory& job, const Walk& walk) {
  Bytes sum = 0;
  for (std::size_t g = 1; g < walk.groups.size(); ++g) sum += job.before(walk.groups[g]);
  return sum;
}

Bytes wave_bytes(const JobMemory& job, const Walk& walk, bool spill) {
  if (!walk.is_wave() || spill || job.steps.empty()) return job.peak();
  const Bytes others = static_cast<Bytes>(walk.jobs - 1);
  Bytes most = job.inputs * (others + 1);
  for (std::size_t g = 0; g < walk.groups.size(); ++g) {
    const StepGroup& group = walk.groups[g];
    Bytes peak = 0;
    for (StepId step = group.begin; step < group.end; ++step) peak = std::max(peak, job.steps[step].peak);
    const bool last = g + 1 == walk.groups.size();
    const Bytes behind = last ? 0 : job.steps[group.end - 1].after;
    // Linear in the number of jobs that have passed: the highest is when the first or the last one runs.
    most = std::max(most, others * std::max(job.before(group), behind) + peak);
  }
  return most;
}

std::vector<std::vector<StepGroup>> candidate_groups(const Packing& packing, const JobMemory& job) {
  const auto steps = static_cast<StepId>(job.steps.size());
  if (steps == 0) return {};
  const std::vector<Cut> all = possible_cuts(packing, job);
  std::vector<Bytes> alive;
  for (std::size_t i = 1; i < all.size(); ++i) alive.push_back(all[i].alive);
  std::sort(alive.begin(), alive.end());
  std::vector<std::vector<Cut>> selections{all};
  if (!alive.empty()) {
    selections.push_back(keep_cheap(all, alive.front() + alive.front() / 20));
    selections.push_back(keep_cheap(all, alive[alive.size() / 2]));
  }
  const Bytes total = std::accumulate(all.begin(), all.end(), Bytes{0},
                                      [](Bytes sum, const Cut& cut) { return sum + cut.weights; });
  std::vector<std::vector<StepGroup>> groupings;
  for (const std::vector<Cut>& cuts : selections) {
    Bytes largest = 0;
    for (const Cut& cut : cuts) largest = std::max(largest, cut.weights);
    for (const Bytes target : {Bytes{0}, largest, 2 * largest, total / 8, total / 3}) {
      std::vector<StepGroup> groups = merge(cuts, target, steps);
      if (std::find(groupings.begin(), groupings.end(), groups) == groupings.end())
        groupings.push_back(std::move(groups));
    }
  }
  return groupings;
}

}  // namespace lowtide::plan
