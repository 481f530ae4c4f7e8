// Placement::by_size: all visits are known, so the largest can choose first, wherever in the pass it comes.
#include <algorithm>
#include <tuple>
#include <utility>

#include "base/checked_math.hpp"
#include "plan/slot_layout.hpp"

namespace lowtide::plan {
namespace {

/// Evenly spread bits of a visit's identity and a seed: how a visit is shaken does not depend on the others.
std::uint32_t shaken(const Visit& visit, std::uint32_t seed) {
  std::uint32_t x = (seed * 2654435761U) ^ (visit.unit * 40503U) ^ (visit.first * 2246822519U);
  x ^= x >> 15;
  x *= 2246822519U;
  x ^= x >> 13;
  x *= 3266489917U;
  return x ^ (x >> 16);
}

/// A visit with the time its place is kept for it.
struct Stay {
  std::size_t visit;
  double rank;        // larger ones choose first
  std::int64_t from;  // the step before which its place should be free
  bool from_end;      // nearest the end of the region, not the start
  Bytes begin = 0;
  Bytes end = 0;
};

/// The gap between `taken` stretches that is nearest the start of the region, or its end.
bool find_gap(std::vector<std::pair<Bytes, Bytes>>& taken, Bytes size, Bytes region_bytes, bool from_end,
              Bytes& begin) {
  if (from_end) {
    for (auto& [first, last] : taken)
      std::tie(first, last) = std::pair(region_bytes - last, region_bytes - first);
  }
  std::sort(taken.begin(), taken.end());
  begin = 0;
  for (const auto& [first, last] : taken) {
    if (first >= begin + size) break;
    begin = std::max(begin, last);
  }
  if (begin + size > region_bytes) return false;
  if (from_end) begin = region_bytes - begin - size;
  return true;
}

}  // namespace

bool SlotLayout::place_by_size(std::span<const Visit> visits, Bytes base, Bytes region_bytes,
                               const Style& style, std::vector<Fetch>& fetches) const {
  std::vector<Stay> stays;
  for (std::size_t i = 0; i < visits.size(); ++i) {
    const std::uint32_t bits = style.seed == 0 ? 0 : shaken(visits[i], style.seed);
    const std::size_t depth = style.seed == 0 ? style.depth : (bits >> 16) % (style.depth + 2U);
    const double factor = style.seed == 0 ? 1.0 : 0.25 + (bits % 1024) / 1024.0;
    stays.push_back({.visit = i,
                     .rank = static_cast<double>(slots_[visits[i].unit]) * factor,
                     .from = i < depth ? kBeforeFirstStep : std::int64_t{visits[i - depth].first},
                     .from_end = style.seed != 0 && (bits >> 30) == 0});
  }
  std::stable_sort(stays.begin(), stays.end(), [](const Stay& a, const Stay& b) { return a.rank > b.rank; });

  std::vector<std::pair<Bytes, Bytes>> taken;
  for (std::size_t i = 0; i < stays.size(); ++i) {
    Stay& stay = stays[i];
    const Visit& visit = visits[stay.visit];
    const Bytes size = slots_[visit.unit];
    bool placed = false;
    for (const bool early : {true, false}) {  // where its place cannot be free early, it is free in time
      taken.clear();
      for (std::size_t k = 0; k < i; ++k) {
        const Visit& other = visits[stays[k].visit];
        const std::int64_t from = early ? stay.from : visit.first;
        const std::int64_t other_from = early ? stays[k].from : other.first;
        if (from <= std::int64_t{other.last} && other_from <= std::int64_t{visit.last})
          taken.emplace_back(stays[k].begin, stays[k].end);
      }
      placed = find_gap(taken, size, region_bytes, stay.from_end, stay.begin);
      stay.end = stay.begin + size;
      if (placed) break;
    }
    if (!placed) return false;
  }

  std::sort(stays.begin(), stays.end(), [](const Stay& a, const Stay& b) { return a.visit < b.visit; });
  for (std::size_t i = 0; i < stays.size(); ++i) {
    const Visit& visit = visits[i];
    std::int64_t free_after = kBeforeFirstStep;
    for (std::size_t k = 0; k < i; ++k) {
      if (stays[k].begin < stays[i].end && stays[i].begin < stays[k].end)
        free_after = std::max(free_after, std::int64_t{visits[k].last});
    }
    fetches.push_back({.unit = visit.unit,
                       .offset = base + stays[i].begin,
                       .free_after = free_after,
                       .first_use = visit.first,
                       .last_use = visit.last});
  }
  std::stable_sort(fetches.begin(), fetches.end(), [](const Fetch& a, const Fetch& b) {
    return a.first_use != b.first_use ? a.first_use < b.first_use : a.free_after < b.free_after;
  });
  return true;
}

Bytes smallest_region(const ResidencyProblem& problem, std::span<Visit> visits, SlotLayout& layout,
                      Style& style) {
  std::vector<std::int64_t> change(problem.steps.size() + 1, 0);
  Bytes all = 0;
  for (const Visit& visit : visits) {
    const auto bytes = static_cast<std::int64_t>(layout.slot_bytes(visit.unit));
    change[visit.first] += bytes;
    change[visit.last + 1] -= bytes;
    all += static_cast<Bytes>(bytes);
  }
  std::int64_t now = 0;
  std::int64_t most = 0;
  for (const std::int64_t c : change) most = std::max(most, now += c);

  std::vector<Fetch> scratch;
  for (Bytes region = static_cast<Bytes>(most); region < all;
       region += std::max(kGranule, round_up(region / 64, kGranule))) {
    for (const Placement placement : kPlacements) {
      if (placement == Placement::by_size && visits.size() > kFewVisits) continue;
      style = {.placement = placement};
      if (layout.place(visits, 0, region, style, scratch)) return region;
    }
  }
  style = {};
  return all;
}

}  // namespace lowtide::plan
