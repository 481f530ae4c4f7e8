// Chooses what stays, what is streamed through which slots and how early, for a slab of a given size.
//
// In a cyclic pass any fixed resident set moves the same bytes; what matters is which copies can hide behind
// compute. So residents, pauses in which a unit leaves, slots and prefetch are searched together
// (slab_search), by simulating candidates (schedule).
//
// A smaller slab's plan is always a candidate for a larger one. To make that exact, slabs are not searched
// one by one: there is a ladder of sizes, each rung starts from the choice of the one below, and a slab
// between two rungs gets the lower one's plan. So the time never rises with the slab.
#pragma once

#include <memory>
#include <set>
#include <vector>

#include "plan/slab_search.hpp"

namespace lowtide::plan {

/// Answers questions about one problem; keeps what is common to all slab sizes, and the rungs it has climbed.
/// Not thread-safe, not even its const functions. The problem must outlive it.
class ResidencySearch {
 public:
  explicit ResidencySearch(const ResidencyProblem& problem);
  ~ResidencySearch();
  ResidencySearch(const ResidencySearch&) = delete;
  ResidencySearch& operator=(const ResidencySearch&) = delete;

  /// The smallest slab with which the program can run, state included.
  Bytes min_slab_bytes() const { return rungs_.front(); }
  /// With this slab everything stays.
  Bytes full_slab_bytes() const { return rungs_.back(); }
  /// The sizes from which on a plan may be another one, rising.
  const std::vector<Bytes>& slab_sizes() const { return rungs_; }

  /// The best plan for a slab of at most `slab_bytes` (at least min_slab_bytes(), else throws
  /// std::logic_error). `keeps` says whether residents survive from job to job; if not, all bytes travel in
  /// every job. The first question about a large slab climbs all rungs below it.
  ResidencyPlan plan(Bytes slab_bytes, bool keeps) const;
  /// A good plan with few evaluations and without the ladder, for an outer search over many problems.
  ResidencyPlan quick(Bytes slab_bytes, bool keeps) const;
  /// For comparison: the leading units stay, the others are streamed, and each is fetched while the one
  /// before it is used (what stable-diffusion.cpp does).
  ResidencyPlan prefix_plan(Bytes slab_bytes, bool keeps) const;

 private:
  struct Climb;
  Climb& climb(bool keeps) const;
  void find_min_slab();
  std::set<Bytes> natural_sizes() const;
  void make_rungs();
  void check(Bytes slab_bytes) const;

  const ResidencyProblem& problem_;
  Timeline timeline_;
  mutable VisitTable table_;
  Bytes mandatory_ = 0;  // state stays
  Bytes smallest_region_ = 0;
  std::vector<Bytes> rungs_;  // rising, from the smallest to the full slab
  mutable std::unique_ptr<Climb> climbs_[2];
};

}  // namespace lowtide::plan
