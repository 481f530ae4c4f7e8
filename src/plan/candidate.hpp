// One way to use a slab, and what it costs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/residency_plan.hpp"
#include "plan/schedule.hpp"
#include "plan/slot_layout.hpp"
#include "plan/visits.hpp"

namespace lowtide::plan {

/// When copies are issued, once their places are free.
enum class Issue : std::uint8_t {
  early,       // at once
  yielding,    // but not in front of a step's upload that they need not overtake
  behind,      // not in front of any upload of a step before their use, even if that makes them come late
  late,        // so that they arrive when they are needed: neither the host nor uploads wait for them
  one_ahead,   // when the unit before is about to be used
  four_ahead,  // the same with the fourth before
};
inline constexpr Issue kIssues[] = {Issue::early, Issue::yielding,  Issue::behind,
                                    Issue::late,  Issue::one_ahead, Issue::four_ahead};

/// Everything a search decides.
struct Candidate {
  UnitModes modes;
  Bytes slab_bytes = 0;  // what residents do not take is the region of the streamed units
  Style style;
  Issue issue = Issue::early;
};

struct Outcome {
  double time_s = 0;
  Bytes streamed_bytes = 0;
  Bytes slab_bytes = 0;  // that it really takes
};

/// Makes the fetches of one candidate after another and simulates them; keeps its memory in between. The
/// arguments must outlive it.
class Evaluator {
 public:
  Evaluator(const ResidencyProblem& problem, const Timeline& timeline, VisitTable& table, bool keeps);

  /// False if the slab is too small.
  bool evaluate(const Candidate& candidate, Outcome& outcome);
  /// No candidate with these modes takes less time: as if there were room for all copies at once.
  double shortest_s(const UnitModes& modes);
  ResidencyPlan plan(const Candidate& candidate);

  /// Of the last evaluation: the fetches that travel, when they arrive, how long compute waits for each.
  std::span<const Fetch> fetches() const { return fetches_; }
  std::span<const double> arrivals() const { return {arrivals_.data(), fetches_.size()}; }
  std::span<const double> stalls() const { return {stalls_.data(), fetches_.size()}; }

  Bytes slot_bytes(UnitId unit) const { return layout_.slot_bytes(unit); }
  Bytes resident_bytes(const UnitModes& modes) const;

 private:
  void add_residents(const UnitModes& modes, bool travelling, std::vector<Fetch>& fetches) const;
  void set_issue(Issue issue);
  void simulate();
  void postpone(bool only_for_uploads);

  const ResidencyProblem& problem_;
  const Timeline& timeline_;
  VisitTable& table_;
  bool keeps_;
  SlotLayout layout_;
  std::vector<Visit> visits_;
  std::vector<Fetch> fetches_;
  std::vector<Fetch> merged_;
  std::vector<std::int64_t> place_free_after_;
  std::vector<std::int64_t> best_free_after_;
  std::vector<double> stalls_;
  std::vector<double> arrivals_;
  std::vector<double> finish_;
  double time_s_ = 0;
};

}  // namespace lowtide::plan
