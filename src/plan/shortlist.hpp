// The candidates of one slab size that the tie rule may still choose.
#pragma once

#include <vector>

#include "plan/candidate.hpp"

namespace lowtide::plan {

struct Choice {
  Candidate candidate;
  Outcome outcome;
};

/// Of the candidates within 0.5 % of the fastest, and not slower than `limit_s`, the one that streams the
/// fewest bytes is taken; then the one that takes the smallest slab; then the faster one; then the one that
/// waits for nothing.
class Shortlist {
 public:
  explicit Shortlist(double limit_s) : limit_s_(limit_s) {}

  /// Keeps a copy if the candidate may be taken.
  void offer(const Candidate& candidate, const Outcome& outcome);
  bool empty() const { return choices_.empty(); }
  const Choice& fastest() const { return choices_.front(); }
  const Choice& pick() const;
  /// Whether pick() would rather be the first.
  bool better(const Outcome& a, const Outcome& b) const;

 private:
  double limit() const;

  double limit_s_;
  std::vector<Choice> choices_;  // rising time, falling (streamed, slab)
};

}  // namespace lowtide::plan
