#include "plan/residency_search.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "base/checked_math.hpp"
#include "plan/schedule.hpp"
#include "plan/slot_layout.hpp"

namespace lowtide::plan {
namespace {

constexpr StepId kNeverSplit = std::numeric_limits<StepId>::max();
/// Among plans this close in time, the one that moves fewer bytes is taken.
constexpr double kTimeTie = 1.005;
/// Sizes of the streaming region that are tried between the smallest and the whole slab.
constexpr int kRegionSteps = 5;
/// Residents are chosen in about so many portions, each after a fresh look at where compute stalls.
constexpr int kResidencyRounds = 8;

Bytes slot_bytes(const ResidencyProblem& problem, UnitId id) {
  return round_up(problem.units[id].bytes, kGranule);
}

/// Resident fetches packed from offset 0; returns the bytes they take.
Bytes place_residents(const ResidencyProblem& problem, const std::vector<bool>& resident,
                      std::vector<Fetch>& fetches) {
  Bytes offset = 0;
  for (UnitId id = 0; id < problem.units.size(); ++id) {
    if (!resident[id]) continue;
    const Unit& unit = problem.units[id];
    fetches.push_back({.unit = id,
                       .offset = offset,
                       .free_after = kBeforeFirstStep,
                       .first_use = unit.uses.front(),
                       .last_use = unit.uses.back(),
                       .resident = true});
    offset += slot_bytes(problem, id);
  }
  return offset;
}

}  // namespace

struct ResidencySearch::Candidate {
  ResidencyPlan plan;
  bool valid = false;

  bool worse_than(const ResidencyPlan& other) const {
    if (!valid) return true;
    if (other.predicted_s * kTimeTie < plan.predicted_s) return true;
    return other.predicted_s < plan.predicted_s * kTimeTie && other.streamed_bytes < plan.streamed_bytes;
  }
};

ResidencySearch::ResidencySearch(const ResidencyProblem& problem)
    : problem_(problem), gaps_(gaps()), full_slab_(problem.rounded_bytes()) {
  const std::vector<bool> resident = mandatory_residents();
  std::vector<Fetch> fixed;
  const Bytes mandatory = place_residents(problem_, resident, fixed);
  Bytes region = std::numeric_limits<Bytes>::max();
  for (const StepId gap : gaps_)
    region = std::min(region, smallest_region(problem_, make_visits(problem_, resident, gap)));
  min_slab_ = mandatory + region;
}

std::vector<bool> ResidencySearch::mandatory_residents() const {
  std::vector<bool> resident(problem_.units.size());
  for (std::size_t i = 0; i < resident.size(); ++i) resident[i] = problem_.units[i].state;
  return resident;
}

std::vector<StepId> ResidencySearch::gaps() const {
  const bool repeated = std::any_of(problem_.units.begin(), problem_.units.end(),
                                    [](const Unit& unit) { return unit.uses.size() > 1 && !unit.packed; });
  if (!repeated) return {kNeverSplit};
  return {kNeverSplit, 64, 1};
}

void ResidencySearch::consider(Candidate& best, const std::vector<bool>& resident, StepId max_gap,
                               Bytes slab_bytes, bool keeps) const {
  std::vector<Fetch> fixed;
  const Bytes taken = place_residents(problem_, resident, fixed);
  if (taken > slab_bytes) return;
  const std::vector<Visit> visits = make_visits(problem_, resident, max_gap);
  const Bytes region = slab_bytes - taken;
  auto fetches = place_visits(problem_, visits, taken, region, Placement::earliest_free);
  if (!fetches) fetches = place_visits(problem_, visits, taken, region, Placement::lowest);
  if (!fetches) return;
  fetches->insert(fetches->begin(), fixed.begin(), fixed.end());
  std::stable_sort(fetches->begin(), fetches->end(),
                   [](const Fetch& a, const Fetch& b) { return a.first_use < b.first_use; });
  ResidencyPlan plan = assess(std::move(*fetches), taken, keeps);
  if (!best.worse_than(plan)) return;
  best.plan = std::move(plan);
  best.valid = true;
}

ResidencyPlan ResidencySearch::assess(std::vector<Fetch> fetches, Bytes resident_end, bool keeps) const {
  ResidencyPlan plan{.slab_bytes = resident_end, .fetches = std::move(fetches)};
  for (const Fetch& fetch : plan.fetches) {
    const Unit& unit = problem_.units[fetch.unit];
    plan.slab_bytes = std::max(plan.slab_bytes, fetch.offset + round_up(unit.bytes, kGranule));
    if (fetch.resident && !unit.state) plan.resident_bytes += unit.bytes;
    if (!keeps || !fetch.resident || unit.state) plan.streamed_bytes += unit.bytes;
  }
  const Schedule schedule = simulate(problem_, plan.fetches, !keeps);
  plan.predicted_s = schedule.total_s;
  plan.stall_s = schedule.stall_s;
  return plan;
}

void ResidencySearch::fill_by_stalls(Candidate& best, StepId max_gap, Bytes region, Bytes slab_bytes,
                                     bool keeps) const {
  std::vector<bool> resident = mandatory_residents();
  std::vector<Fetch> scratch;
  Bytes room = saturating_sub(slab_bytes - region, place_residents(problem_, resident, scratch));
  const Bytes portion = room / kResidencyRounds;
  while (true) {
    Candidate now;
    consider(now, resident, max_gap, slab_bytes, keeps);
    if (!now.valid) return;
    const std::vector<UnitId> stalling = by_stall(now.plan, !keeps);
    if (best.worse_than(now.plan)) best = std::move(now);
    Bytes added = 0;
    for (const UnitId id : stalling) {
      if (resident[id] || slot_bytes(problem_, id) > room) continue;
      resident[id] = true;
      room -= slot_bytes(problem_, id);
      added += slot_bytes(problem_, id);
      if (added >= portion) break;
    }
    if (added == 0) return;
  }
}

std::vector<UnitId> ResidencySearch::by_stall(const ResidencyPlan& plan, bool first_job) const {
  const Schedule schedule = simulate(problem_, plan.fetches, first_job);
  std::vector<double> stall(problem_.units.size(),
                            0.0);  // a unit that is copied several times collects all its waits
  for (std::size_t i = 0; i < plan.fetches.size(); ++i)
    stall[plan.fetches[i].unit] += schedule.fetch_stall_s[i];
  std::vector<UnitId> order;
  for (UnitId id = 0; id < stall.size(); ++id) {
    if (stall[id] > 0) order.push_back(id);
  }
  std::stable_sort(order.begin(), order.end(), [&](UnitId a, UnitId b) { return stall[a] > stall[b]; });
  return order;
}

void ResidencySearch::fill_in_order(Candidate& best, StepId max_gap, Bytes region, Bytes slab_bytes,
                                    bool keeps, bool spread) const {
  std::vector<bool> resident = mandatory_residents();
  std::vector<Fetch> scratch;
  Bytes room = saturating_sub(slab_bytes - region, place_residents(problem_, resident, scratch));
  std::vector<UnitId> order(problem_.units.size());
  std::iota(order.begin(), order.end(), UnitId{0});
  if (spread) {  // bit-reversed order: each prefix of it is spread evenly over the pass
    const auto reversed = [](UnitId id) {
      std::uint32_t r = 0;
      for (int bit = 0; bit < 32; ++bit) r |= ((id >> bit) & 1U) << (31 - bit);
      return r;
    };
    std::sort(order.begin(), order.end(), [&](UnitId a, UnitId b) { return reversed(a) < reversed(b); });
  }
  for (const UnitId id : order) {
    if (resident[id] || slot_bytes(problem_, id) > room) continue;
    resident[id] = true;
    room -= slot_bytes(problem_, id);
  }
  consider(best, resident, max_gap, slab_bytes, keeps);
}

ResidencyPlan ResidencySearch::plan(Bytes slab_bytes, bool keeps) const {
  if (slab_bytes < min_slab_) throw std::logic_error("slab below the planner's minimum");
  Candidate best;
  if (slab_bytes >= full_slab_) {
    consider(best, std::vector<bool>(problem_.units.size(), true), kNeverSplit, full_slab_, keeps);
    if (keeps) return best.plan;  // nothing travels: nothing can be faster
  }
  for (const StepId gap : gaps_) {
    const std::vector<bool> mandatory = mandatory_residents();
    consider(best, mandatory, gap, slab_bytes, keeps);
    const Bytes smallest = smallest_region(problem_, make_visits(problem_, mandatory, gap));
    if (!keeps || smallest >= slab_bytes) continue;
    // Geometric: the difference between one slot and two matters more than that between ten and eleven.
    const double ratio = static_cast<double>(slab_bytes) / static_cast<double>(std::max<Bytes>(smallest, 1));
    for (int i = 0; i < kRegionSteps; ++i) {
      const auto region =
          static_cast<Bytes>(static_cast<double>(smallest) * std::pow(ratio, double(i) / kRegionSteps));
      fill_by_stalls(best, gap, region, slab_bytes, keeps);
      fill_in_order(best, gap, region, slab_bytes, keeps, true);
      fill_in_order(best, gap, region, slab_bytes, keeps, false);
    }
  }
  // The plan of the smallest slab always exists, whatever the policies above found.
  if (!best.valid) {
    for (const StepId gap : gaps_) consider(best, mandatory_residents(), gap, min_slab_, keeps);
  }
  if (!best.valid) throw std::logic_error("no residency plan for a slab above the minimum");
  return best.plan;
}

}  // namespace lowtide::plan
