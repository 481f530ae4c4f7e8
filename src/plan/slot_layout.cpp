#include "plan/slot_layout.hpp"

#include <algorithm>
#include <array>

#include "base/checked_math.hpp"

namespace lowtide::plan {

Bytes ResidencyProblem::rounded_bytes() const {
  Bytes sum = 0;
  for (const Unit& unit : units) sum += round_up(unit.bytes, kGranule);
  return sum;
}

Bytes ResidencyProblem::exact_bytes() const {
  Bytes sum = 0;
  for (const Unit& unit : units) sum += unit.bytes;
  return sum;
}

std::vector<Visit> make_visits(const ResidencyProblem& problem, const std::vector<bool>& resident,
                               StepId max_gap) {
  std::vector<Visit> visits;
  for (UnitId id = 0; id < problem.units.size(); ++id) {
    if (resident[id]) continue;
    const std::vector<StepId>& uses = problem.units[id].uses;
    visits.push_back({id, uses.front(), uses.front()});
    for (const StepId use : uses) {
      if (!problem.units[id].packed && use - visits.back().last > max_gap) {
        visits.push_back({id, use, use});
      } else {
        visits.back().last = use;
      }
    }
  }
  std::sort(visits.begin(), visits.end(), [&](const Visit& a, const Visit& b) {
    if (a.first != b.first) return a.first < b.first;
    const Bytes size_a = problem.units[a.unit].bytes;
    const Bytes size_b = problem.units[b.unit].bytes;
    return size_a != size_b ? size_a > size_b : a.unit < b.unit;  // large ones find a place more easily first
  });
  return visits;
}

namespace {

/// A stretch of the region and the last step that needs what lies there now.
struct Segment {
  Bytes begin;
  Bytes end;
  std::int64_t busy_until;
};

/// The region as a sorted list of touching segments.
class Region {
 public:
  Region(Bytes bytes, Placement placement) : bytes_(bytes), placement_(placement) {
    if (bytes > 0) segments_.push_back({0, bytes, kBeforeFirstStep});
  }

  /// Takes `size` bytes for steps up to `last`; they must be free before step `first`. On success sets the
  /// offset and returns the step after which the copy may start.
  std::optional<std::int64_t> take(Bytes size, StepId first, StepId last, Bytes& offset) {
    std::optional<std::int64_t> best;
    Bytes best_offset = 0;
    for (std::size_t i = 0; i < segments_.size(); ++i) {
      const Bytes begin = segments_[i].begin;
      if (size > bytes_ - begin) break;
      std::int64_t busy = kBeforeFirstStep;
      for (std::size_t k = i; k < segments_.size() && segments_[k].begin < begin + size; ++k)
        busy = std::max(busy, segments_[k].busy_until);
      if (busy >= static_cast<std::int64_t>(first)) continue;
      if (!best || busy < *best) {
        best = busy;
        best_offset = begin;
        if (placement_ == Placement::lowest) break;
      }
    }
    if (!best) return std::nullopt;
    occupy(best_offset, best_offset + size, last);
    offset = best_offset;
    return best;
  }

 private:
  /// Replaces what overlaps [begin, end) by the rest before it, the new tenant, and the rest behind it.
  void occupy(Bytes begin, Bytes end, std::int64_t until) {
    const auto first =
        std::find_if(segments_.begin(), segments_.end(), [&](const Segment& s) { return s.end > begin; });
    const auto last = std::find_if(first, segments_.end(), [&](const Segment& s) { return s.begin >= end; });
    const Segment head = *first;
    const Segment tail = *(last - 1);
    std::array<Segment, 3> fresh;
    std::size_t count = 0;
    if (head.begin < begin) fresh[count++] = {head.begin, begin, head.busy_until};
    fresh[count++] = {begin, end, until};
    if (tail.end > end) fresh[count++] = {end, tail.end, tail.busy_until};
    const auto replaced = std::min<std::size_t>(count, static_cast<std::size_t>(last - first));
    const auto rest = std::copy_n(fresh.begin(), replaced, first);
    if (rest != last) {
      segments_.erase(rest, last);
    } else {
      segments_.insert(rest, fresh.begin() + replaced, fresh.begin() + count);
    }
  }

  Bytes bytes_;
  Placement placement_;
  std::vector<Segment> segments_;
};

}  // namespace

std::optional<std::vector<Fetch>> place_visits(const ResidencyProblem& problem, std::span<const Visit> visits,
                                               Bytes base, Bytes region_bytes, Placement placement) {
  Region region(region_bytes, placement);
  std::vector<Fetch> fetches;
  fetches.reserve(visits.size());
  for (const Visit& visit : visits) {
    Bytes offset = 0;
    const auto free_after =
        region.take(round_up(problem.units[visit.unit].bytes, kGranule), visit.first, visit.last, offset);
    if (!free_after) return std::nullopt;
    fetches.push_back({.unit = visit.unit,
                       .offset = base + offset,
                       .free_after = *free_after,
                       .first_use = visit.first,
                       .last_use = visit.last,
                       .resident = false});
  }
  return fetches;
}

Bytes smallest_region(const ResidencyProblem& problem, std::span<const Visit> visits) {
  std::vector<std::int64_t> change(problem.steps.size() + 1, 0);
  Bytes all = 0;
  for (const Visit& visit : visits) {
    const auto bytes = static_cast<std::int64_t>(round_up(problem.units[visit.unit].bytes, kGranule));
    change[visit.first] += bytes;
    change[visit.last + 1] -= bytes;
    all += static_cast<Bytes>(bytes);
  }
  std::int64_t now = 0;
  std::int64_t most = 0;
  for (const std::int64_t c : change) most = std::max(most, now += c);

  for (Bytes region = static_cast<Bytes>(most); region < all;
       region += std::max(kGranule, round_up(region / 64, kGranule))) {
    for (const Placement placement : {Placement::lowest, Placement::earliest_free}) {
      if (place_visits(problem, visits, 0, region, placement)) return region;
    }
  }
  return all;
}

}  // namespace lowtide::plan
