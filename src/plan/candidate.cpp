#include "plan/candidate.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace lowtide::plan {
namespace {

constexpr double kForever = std::numeric_limits<double>::infinity();
/// Copies that come later change when the device is done with its steps, and with that when they must come.
constexpr int kPostponeRounds = 3;

bool used_earlier(const Fetch& a, const Fetch& b) {
  return a.first_use < b.first_use;
}

}  // namespace

Evaluator::Evaluator(const ResidencyProblem& problem, const Timeline& timeline, VisitTable& table, bool keeps)
    : problem_(problem), timeline_(timeline), table_(table), keeps_(keeps), layout_(problem) {}

Bytes Evaluator::resident_bytes(const UnitModes& modes) const {
  Bytes sum = 0;
  for (UnitId id = 0; id < problem_.units.size(); ++id) {
    if (modes.resident[id]) sum += layout_.slot_bytes(id);
  }
  return sum;
}

bool Evaluator::evaluate(const Candidate& candidate, Outcome& outcome) {
  const Bytes taken = resident_bytes(candidate.modes);
  if (taken > candidate.slab_bytes) return false;
  table_.list(candidate.modes, visits_);
  if (!layout_.place(visits_, taken, candidate.slab_bytes - taken, candidate.style, fetches_)) return false;
  outcome = {.slab_bytes = taken};
  for (const Fetch& fetch : fetches_)
    outcome.slab_bytes = std::max(outcome.slab_bytes, fetch.offset + layout_.slot_bytes(fetch.unit));
  merged_.clear();
  add_residents(candidate.modes, true, merged_);
  if (!merged_.empty()) {
    const auto middle = static_cast<std::ptrdiff_t>(merged_.size());
    merged_.insert(merged_.end(), fetches_.begin(), fetches_.end());
    std::inplace_merge(merged_.begin(), merged_.begin() + middle, merged_.end(), used_earlier);
    fetches_.swap(merged_);
  }
  for (const Fetch& fetch : fetches_) outcome.streamed_bytes += problem_.units[fetch.unit].bytes;
  set_issue(candidate.issue);
  outcome.time_s = time_s_;
  return true;
}

double Evaluator::shortest_s(const UnitModes& modes) {
  table_.list(modes, visits_);
  merged_.clear();
  add_residents(modes, true, merged_);
  double link = problem_.begin_s + problem_.link.launch_s;
  double shortest = problem_.begin_s + timeline_.busy_from(0);
  auto resident = merged_.begin();
  const auto arrive = [&](UnitId unit, StepId first_use) {
    link += timeline_.copy_s(unit);
    shortest = std::max(shortest, link + timeline_.busy_from(first_use));
  };
  for (const Visit& visit : visits_) {
    for (; resident != merged_.end() && resident->first_use <= visit.first; ++resident)
      arrive(resident->unit, resident->first_use);
    arrive(visit.unit, visit.first);
  }
  for (; resident != merged_.end(); ++resident) arrive(resident->unit, resident->first_use);
  return shortest + problem_.end_s;
}

/// Fetches of the residents that travel in every job, or of those that do not; by first use. They have places
/// of their own and wait only for their turn.
void Evaluator::add_residents(const UnitModes& modes, bool travelling, std::vector<Fetch>& fetches) const {
  Bytes offset = 0;
  for (UnitId id = 0; id < problem_.units.size(); ++id) {
    if (!modes.resident[id]) continue;
    const Unit& unit = problem_.units[id];
    if ((unit.state || !keeps_) == travelling)
      fetches.push_back({.unit = id,
                         .offset = offset,
                         .first_use = unit.uses.front(),
                         .last_use = unit.uses.back(),
                         .resident = true});
    offset += layout_.slot_bytes(id);
  }
  std::stable_sort(fetches.begin(), fetches.end(), used_earlier);
}

void Evaluator::simulate() {
  if (stalls_.size() < fetches_.size()) {
    stalls_.resize(fetches_.size());
    arrivals_.resize(fetches_.size());
  }
  time_s_ = timeline_.time(fetches_, stalls_, arrivals_);
}

void Evaluator::set_issue(Issue issue) {
  if (issue == Issue::one_ahead || issue == Issue::four_ahead) {
    const std::size_t ahead = issue == Issue::one_ahead ? 1 : 4;
    for (std::size_t i = ahead; i < fetches_.size(); ++i)
      fetches_[i].free_after =
          std::max(fetches_[i].free_after, std::int64_t{fetches_[i - ahead].first_use} - 1);
  }
  if (issue == Issue::behind) {
    const std::span<const StepId> uploads = timeline_.uploads();
    std::size_t before = 0;
    for (Fetch& fetch : fetches_) {  // by first use
      while (before < uploads.size() && uploads[before] < fetch.first_use) ++before;
      if (before > 0) fetch.free_after = std::max(fetch.free_after, std::int64_t{uploads[before - 1]});
    }
  }
  simulate();
  if (issue != Issue::late && issue != Issue::yielding) return;

  place_free_after_.clear();
  for (const Fetch& fetch : fetches_) place_free_after_.push_back(fetch.free_after);
  best_free_after_ = place_free_after_;
  double best_s = time_s_;
  for (int round = 0; round < kPostponeRounds; ++round) {
    postpone(issue == Issue::yielding);
    simulate();
    if (time_s_ >= best_s) continue;
    best_s = time_s_;
    for (std::size_t i = 0; i < fetches_.size(); ++i) best_free_after_[i] = fetches_[i].free_after;
  }
  for (std::size_t i = 0; i < fetches_.size(); ++i) fetches_[i].free_after = best_free_after_[i];
  simulate();
}

/// Issues copies as late as they still arrive when the device, as simulated last, gets to their first use,
/// and as they do not hold up the uploads they go in front of.
void Evaluator::postpone(bool only_for_uploads) {
  timeline_.finish_times(fetches_, arrivals_, finish_);
  const std::span<const StepId> uploads = timeline_.uploads();
  const auto start = [&](StepId step) {
    return finish_[step] - problem_.steps[step].kernel_s - problem_.steps[step].upload_s;
  };
  double end = kForever;                   // when the link must be done with the copy
  std::size_t overtaken = uploads.size();  // from here on, uploads come after the copy
  std::int64_t after = static_cast<std::int64_t>(problem_.steps.size()) - 1;
  for (std::size_t i = fetches_.size(); i-- > 0;) {
    Fetch& fetch = fetches_[i];
    const double copy_s = timeline_.copy_s(fetch.unit);
    end = std::min(end, start(fetch.first_use));
    after = std::min(after, std::int64_t{fetch.first_use} - 1);
    while (overtaken > 0 && uploads[overtaken - 1] >= fetch.first_use) --overtaken;
    while (true) {
      while (after >= 0 && finish_[static_cast<std::size_t>(after)] > end - copy_s) --after;
      if (overtaken == 0 || std::int64_t{uploads[overtaken - 1]} <= after) break;
      end = std::min(end, start(uploads[--overtaken]));
    }
    end -= copy_s;
    const std::int64_t wish = !only_for_uploads ? after
                              : overtaken == 0  ? kBeforeFirstStep
                                                : std::int64_t{uploads[overtaken - 1]};
    fetch.free_after = std::max(place_free_after_[i], wish);
  }
}

ResidencyPlan Evaluator::plan(const Candidate& candidate) {
  Outcome outcome;
  if (!evaluate(candidate, outcome)) throw std::logic_error("a plan that was found does not fit");
  ResidencyPlan plan{.slab_bytes = outcome.slab_bytes,
                     .streamed_bytes = outcome.streamed_bytes,
                     .predicted_s = outcome.time_s};
  for (const double stall : stalls()) plan.stall_s += stall;
  for (UnitId id = 0; id < problem_.units.size(); ++id) {
    if (candidate.modes.resident[id] && !problem_.units[id].state)
      plan.resident_bytes += problem_.units[id].bytes;
  }
  std::vector<Fetch> kept;
  add_residents(candidate.modes, false, kept);
  plan.fetches.reserve(kept.size() + fetches_.size());
  std::merge(kept.begin(), kept.end(), fetches_.begin(), fetches_.end(), std::back_inserter(plan.fetches),
             used_earlier);
  return plan;
}

}  // namespace lowtide::plan
