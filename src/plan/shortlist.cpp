#include "plan/shortlist.hpp"

#include <algorithm>
#include <tuple>

namespace lowtide::plan {
namespace {

/// Times this close count as equal.
constexpr double kTimeTie = 1.005;

bool less_room(const Outcome& a, const Outcome& b) {
  return std::tie(a.streamed_bytes, a.slab_bytes) < std::tie(b.streamed_bytes, b.slab_bytes);
}

}  // namespace

double Shortlist::limit() const {
  return choices_.empty() ? limit_s_ : std::min(limit_s_, choices_.front().outcome.time_s * kTimeTie);
}

void Shortlist::offer(const Candidate& candidate, const Outcome& outcome) {
  if (outcome.time_s > limit()) return;
  auto at = std::find_if(choices_.begin(), choices_.end(),
                         [&](const Choice& c) { return c.outcome.time_s > outcome.time_s; });
  // The one before is at least as fast: this one must be smaller.
  if (at != choices_.begin() && !less_room(outcome, std::prev(at)->outcome)) return;
  const auto end =
      std::find_if(at, choices_.end(), [&](const Choice& c) { return less_room(c.outcome, outcome); });
  at = choices_.erase(at, end);
  choices_.insert(at, {candidate, outcome});
  while (choices_.back().outcome.time_s > limit()) choices_.pop_back();
}

const Choice& Shortlist::pick() const {
  return choices_.back();
}

bool Shortlist::better(const Outcome& a, const Outcome& b) const {
  const bool a_in = a.time_s <= limit();
  const bool b_in = b.time_s <= limit();
  if (a_in != b_in) return a_in;
  if (!a_in) return a.time_s < b.time_s;
  return std::tie(a.streamed_bytes, a.slab_bytes, a.time_s) <
         std::tie(b.streamed_bytes, b.slab_bytes, b.time_s);
}

}  // namespace lowtide::plan
