// Searches a good way to use a slab of one size.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "plan/candidate.hpp"
#include "plan/shortlist.hpp"

namespace lowtide::plan {

class SlabSearch {
 public:
  /// `smallest_region`: of the streamed units if nothing but state is resident; a scale for what is tried.
  SlabSearch(const ResidencyProblem& problem, const Timeline& timeline, VisitTable& table, bool keeps,
             Bytes smallest_region);

  /// The choice among the candidates found in about `evaluations` tries. `known` is in any case one of them
  /// and sets the time that the choice may not exceed; nothing if no candidate fits.
  std::optional<Choice> search(Bytes slab_bytes, const Choice* known, std::size_t evaluations);
  Evaluator& evaluator() { return evaluator_; }

 private:
  // Candidates to start from.
  UnitModes streamed(StepId longest_pause) const;
  void try_known(const Choice& known);
  void try_streamed();
  void try_policies(StepId longest_pause, Bytes region, const Style& style);
  void fill_in_order(UnitModes& modes, Bytes room) const;
  void fill_by_weight(UnitModes& modes, Bytes room);
  void weigh_by_bytes();
  void weigh_by_stalls();

  // Search.
  bool attempt(const Candidate& candidate, Outcome& outcome);
  bool can_survey() const { return order_.size() + table_.pauses() <= kSurveyBits; }
  std::vector<std::pair<double, UnitModes>> promising_modes();
  void survey(std::size_t evaluations);
  void wander(std::size_t evaluations);
  void refine(bool fastest, std::size_t evaluations);
  void change_style(Candidate& candidate);
  void flip(UnitModes& modes, UnitId unit);
  std::uint32_t random(std::size_t below);
  Issue random_issue();
  UnitId random_unit() { return order_[random(order_.size())]; }
  bool few() const;

  /// With so many units and pauses at most, every way to use them is looked at.
  static constexpr std::size_t kSurveyBits = 11;

  const ResidencyProblem& problem_;
  const Timeline& timeline_;
  VisitTable& table_;
  bool keeps_;
  Bytes smallest_region_;
  Evaluator evaluator_;
  std::vector<UnitId> order_;    // units that may be streamed, by first use
  std::vector<double> weights_;  // per unit
  std::uint32_t random_ = 1;

  Bytes slab_ = 0;  // of the present search
  Shortlist list_{0};
  std::size_t left_ = 0;     // evaluations
  std::size_t surveys_ = 0;  // so far
};

}  // namespace lowtide::plan
