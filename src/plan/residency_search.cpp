#include "plan/residency_search.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <stdexcept>

#include "base/checked_math.hpp"

namespace lowtide::plan {
namespace {

/// Rungs are at least this factor apart...
constexpr double kRungFactor = 1.03;
/// ...and at most so many.
constexpr int kMostRungs = 72;
/// An evenly spaced rung so close below a natural one is left out.
constexpr double kSameRung = 1.01;
/// Natural rungs: up to so many units of so many sizes; units below this share of the largest count together.
constexpr int kFewSlots = 6;
constexpr std::size_t kFewUnits = 8;
constexpr std::size_t kCommonSizes = 3;
constexpr Bytes kSmallShare = 16;
/// What all rungs together may cost, counted in copies that are simulated.
constexpr std::size_t kClimbCopies = 400'000;
/// The same for problems of few units, where chance matters more.
constexpr std::size_t kFewUnitsCopies = 1'000'000;
constexpr std::size_t kQuickCopies = 12'000;
/// Bounds on the evaluations of one search, whatever they cost.
constexpr std::size_t kFewestTries = 12;
constexpr std::size_t kMostTries = 3000;

std::size_t tries(std::size_t copies, std::size_t searches, std::size_t units) {
  return std::clamp(copies / std::max<std::size_t>(1, searches * std::max<std::size_t>(units, 1)),
                    kFewestTries, kMostTries);
}

}  // namespace

/// How far the ladder has been climbed.
struct ResidencySearch::Climb {
  Climb(const ResidencySearch& owner, bool keeps)
      : search(owner.problem_, owner.timeline_, owner.table_, keeps, owner.smallest_region_) {}

  SlabSearch search;
  std::vector<Choice> choices;  // per rung so far
};

ResidencySearch::ResidencySearch(const ResidencyProblem& problem)
    : problem_(problem), timeline_(problem), table_(problem) {
  find_min_slab();
  make_rungs();
}

ResidencySearch::~ResidencySearch() = default;

void ResidencySearch::find_min_slab() {
  SlotLayout layout(problem_);
  UnitModes modes;
  for (UnitId id = 0; id < problem_.units.size(); ++id) {
    modes.resident.push_back(problem_.units[id].state);
    if (problem_.units[id].state) mandatory_ += layout.slot_bytes(id);
  }
  modes.leaves.resize(table_.pauses());
  smallest_region_ = UINT64_MAX;
  std::vector<Visit> visits;
  for (const StepId longest : table_.thresholds()) {
    for (std::uint32_t i = 0; i < table_.pauses(); ++i) modes.leaves[i] = table_.pause_steps(i) > longest;
    table_.list(modes, visits);
    Style style;
    smallest_region_ = std::min(smallest_region_, smallest_region(problem_, visits, layout, style));
  }
}

/// Sizes at which something new fits: a few units of the sizes that make up most of the weights, with and
/// without all small ones. Between few slots and many these matter more than any even spacing.
std::set<Bytes> ResidencySearch::natural_sizes() const {
  std::map<Bytes, Bytes> total_of;  // by slot size
  Bytes largest = 0;
  for (const Unit& unit : problem_.units) {
    const Bytes slot = round_up(unit.bytes, kGranule);
    total_of[slot] += slot;
    largest = std::max(largest, slot);
  }
  Bytes small = 0;
  std::vector<std::pair<Bytes, Bytes>> by_total;
  for (const auto& [slot, total] : total_of) {
    if (slot < largest / kSmallShare) {
      small += total;
    } else {
      by_total.push_back({total, slot});
    }
  }
  if (problem_.units.size() <= kFewUnits) {  // every sum
    std::set<Bytes> sums{0};
    for (const Unit& unit : problem_.units) {
      std::set<Bytes> with = sums;
      for (const Bytes sum : sums) with.insert(sum + round_up(unit.bytes, kGranule));
      sums = std::move(with);
    }
    return sums;
  }
  std::sort(by_total.begin(), by_total.end(), std::greater<>());
  if (by_total.size() > kCommonSizes) by_total.resize(kCommonSizes);
  std::set<std::pair<Bytes, int>> sums{{0, 0}};  // bytes, units
  for (const auto& [total, slot] : by_total) {
    std::set<std::pair<Bytes, int>> with = sums;
    for (const auto& [bytes, count] : sums) {
      for (int more = 1; count + more <= kFewSlots; ++more)
        with.insert({bytes + static_cast<Bytes>(more) * slot, count + more});
    }
    sums = std::move(with);
  }
  std::set<Bytes> sizes;
  for (const auto& [bytes, count] : sums) {
    sizes.insert(mandatory_ + bytes);
    sizes.insert(mandatory_ + bytes + small);
  }
  return sizes;
}

void ResidencySearch::make_rungs() {
  const Bytes smallest = mandatory_ + smallest_region_;
  const Bytes full = std::max(smallest, problem_.rounded_bytes());
  std::set<Bytes> rungs = natural_sizes();
  const double ratio = static_cast<double>(full) / static_cast<double>(std::max<Bytes>(smallest, 1));
  const double factor = std::max(kRungFactor, std::pow(ratio, 1.0 / kMostRungs));
  for (double size = static_cast<double>(smallest) * factor; size < static_cast<double>(full);
       size *= factor) {
    const Bytes even = round_up(static_cast<Bytes>(size), kGranule);
    const auto next = rungs.lower_bound(even);
    if (next == rungs.end() || static_cast<double>(*next) > size * kSameRung) rungs.insert(even);
  }
  rungs_.push_back(smallest);
  for (const Bytes rung : rungs) {
    if (rung > smallest && rung < full) rungs_.push_back(rung);
  }
  if (full > smallest) rungs_.push_back(full);
}

void ResidencySearch::check(Bytes slab_bytes) const {
  if (slab_bytes < min_slab_bytes()) throw std::logic_error("slab below the planner's minimum");
}

ResidencySearch::Climb& ResidencySearch::climb(bool keeps) const {
  std::unique_ptr<Climb>& known = climbs_[keeps ? 1 : 0];
  if (!known) known = std::make_unique<Climb>(*this, keeps);
  return *known;
}

ResidencyPlan ResidencySearch::plan(Bytes slab_bytes, bool keeps) const {
  check(slab_bytes);
  const auto rung = static_cast<std::size_t>(std::upper_bound(rungs_.begin(), rungs_.end(), slab_bytes) -
                                             rungs_.begin() - 1);
  Climb& climbed = climb(keeps);
  const std::size_t copies = problem_.units.size() <= kFewUnits ? kFewUnitsCopies : kClimbCopies;
  const std::size_t evaluations = tries(copies, rungs_.size(), problem_.units.size());
  if (keeps && rung + 1 == rungs_.size()) {  // nothing travels: nothing can be faster
    Candidate all{.modes = {std::vector<std::uint8_t>(problem_.units.size(), 1),
                            std::vector<std::uint8_t>(table_.pauses(), 0)},
                  .slab_bytes = full_slab_bytes()};
    return climbed.search.evaluator().plan(all);
  }
  while (climbed.choices.size() <= rung) {
    const std::size_t next = climbed.choices.size();
    const Choice* below = next == 0 ? nullptr : &climbed.choices.back();
    std::optional<Choice> choice = climbed.search.search(rungs_[next], below, evaluations);
    if (!choice) throw std::logic_error("no residency plan for a slab above the minimum");
    climbed.choices.push_back(std::move(*choice));
  }
  return climbed.search.evaluator().plan(climbed.choices[rung].candidate);
}

ResidencyPlan ResidencySearch::quick(Bytes slab_bytes, bool keeps) const {
  check(slab_bytes);
  SlabSearch search(problem_, timeline_, table_, keeps, smallest_region_);
  const Bytes whole = std::min(slab_bytes, full_slab_bytes()) / kGranule * kGranule;
  const std::optional<Choice> choice =
      search.search(whole, nullptr, tries(kQuickCopies, 1, problem_.units.size()));
  return choice ? search.evaluator().plan(choice->candidate) : plan(min_slab_bytes(), keeps);
}

ResidencyPlan ResidencySearch::prefix_plan(Bytes slab_bytes, bool keeps) const {
  check(slab_bytes);
  Evaluator evaluator(problem_, timeline_, table_, keeps);
  std::vector<Bytes> sizes;
  for (UnitId id = 0; id < problem_.units.size(); ++id) {
    if (!problem_.units[id].state) sizes.push_back(evaluator.slot_bytes(id));
  }
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  const Bytes two_largest = (sizes.empty() ? 0 : sizes[0]) + (sizes.size() < 2 ? 0 : sizes[1]);
  Candidate candidate{.slab_bytes = std::min(slab_bytes, full_slab_bytes()) / kGranule * kGranule,
                      .issue = Issue::one_ahead};
  for (const Unit& unit : problem_.units) candidate.modes.resident.push_back(unit.state);
  candidate.modes.leaves.assign(table_.pauses(), 0);
  if (keeps) {  // units come in order of first use
    Bytes room = saturating_sub(candidate.slab_bytes, mandatory_ + std::max(two_largest, smallest_region_));
    if (slab_bytes >= full_slab_bytes()) room = full_slab_bytes();
    for (UnitId id = 0; id < problem_.units.size(); ++id) {
      if (candidate.modes.resident[id]) continue;
      if (evaluator.slot_bytes(id) > room) break;
      candidate.modes.resident[id] = 1;
      room -= evaluator.slot_bytes(id);
    }
  }
  Outcome outcome;
  for (const Placement placement : kPlacements) {
    candidate.style.placement = placement;
    if (evaluator.evaluate(candidate, outcome)) return evaluator.plan(candidate);
  }
  std::fill(candidate.modes.leaves.begin(), candidate.modes.leaves.end(), std::uint8_t{1});
  for (const Placement placement : kPlacements) {
    candidate.style.placement = placement;
    if (evaluator.evaluate(candidate, outcome)) return evaluator.plan(candidate);
  }
  return plan(min_slab_bytes(), keeps);
}

}  // namespace lowtide::plan
