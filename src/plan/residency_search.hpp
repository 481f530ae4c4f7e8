// Chooses what stays, what is streamed through which slots and how early, for a slab of a given size.
//
// In a cyclic pass any fixed resident set moves the same bytes; what matters is which copies can hide behind
// compute. So residency, slots and prefetch are searched together: for several sizes of the streaming region,
// the rest of the slab is filled with residents by three policies (where compute stalls most, evenly spaced,
// first in use order), each is simulated, and the fastest wins; within 0.5 % the one that moves fewer bytes.
#pragma once

#include "plan/residency_plan.hpp"

namespace lowtide::plan {

/// Answers questions about one problem; keeps what is common to all slab sizes. Not thread-safe. The problem
/// must outlive it.
class ResidencySearch {
 public:
  explicit ResidencySearch(const ResidencyProblem& problem);

  /// The smallest slab with which the program can run, state included.
  Bytes min_slab_bytes() const { return min_slab_; }
  /// With this slab everything stays.
  Bytes full_slab_bytes() const { return full_slab_; }

  /// The best plan for a slab of at most `slab_bytes` (at least min_slab_bytes(), else throws
  /// std::logic_error). `keeps` says whether residents survive from job to job; if not, all bytes travel in
  /// every job.
  ResidencyPlan plan(Bytes slab_bytes, bool keeps) const;

 private:
  struct Candidate;
  std::vector<bool> mandatory_residents() const;
  std::vector<StepId> gaps() const;
  void consider(Candidate& best, const std::vector<bool>& resident, StepId max_gap, Bytes slab_bytes,
                bool keeps) const;
  /// Sizes, traffic and time of a complete list of fetches.
  ResidencyPlan assess(std::vector<Fetch> fetches, Bytes resident_end, bool keeps) const;
  /// Units that compute waits for, longest wait first.
  std::vector<UnitId> by_stall(const ResidencyPlan& plan, bool first_job) const;
  void fill_by_stalls(Candidate& best, StepId max_gap, Bytes region, Bytes slab_bytes, bool keeps) const;
  void fill_in_order(Candidate& best, StepId max_gap, Bytes region, Bytes slab_bytes, bool keeps,
                     bool spread) const;

  const ResidencyProblem& problem_;
  std::vector<StepId> gaps_;  // visit-splitting thresholds worth trying
  Bytes min_slab_ = 0;
  Bytes full_slab_ = 0;
};

}  // namespace lowtide::plan
