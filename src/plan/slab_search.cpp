#include "plan/slab_search.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/checked_math.hpp"

namespace lowtide::plan {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr int kRegionSteps = 5;
/// survey(): layouts by size that are tried in random order, once all plain ones were.
constexpr std::size_t kShakenRounds = 256;

}  // namespace

SlabSearch::SlabSearch(const ResidencyProblem& problem, const Timeline& timeline, VisitTable& table,
                       bool keeps, Bytes smallest_region)
    : problem_(problem),
      timeline_(timeline),
      table_(table),
      keeps_(keeps),
      smallest_region_(std::max<Bytes>(smallest_region, 1)),
      evaluator_(problem, timeline, table, keeps),
      weights_(problem.units.size()) {
  for (UnitId id = 0; id < problem.units.size(); ++id) {
    if (!problem.units[id].state) order_.push_back(id);
  }
  std::stable_sort(order_.begin(), order_.end(), [&](UnitId a, UnitId b) {
    return problem.units[a].uses.front() < problem.units[b].uses.front();
  });
}

std::uint32_t SlabSearch::random(std::size_t below) {
  random_ ^= random_ << 13;
  random_ ^= random_ >> 17;
  random_ ^= random_ << 5;
  return random_ % static_cast<std::uint32_t>(below);
}

/// Copies that wait longer than for their place only help where steps upload something themselves.
Issue SlabSearch::random_issue() {
  return timeline_.uploads().empty() ? Issue::early : kIssues[random(std::size(kIssues))];
}

bool SlabSearch::few() const {
  return order_.size() <= kFewVisits;
}

std::optional<Choice> SlabSearch::search(Bytes slab_bytes, const Choice* known, std::size_t evaluations) {
  slab_ = slab_bytes;
  left_ = evaluations;
  list_ = Shortlist(known != nullptr ? known->outcome.time_s : kInf);
  if (known != nullptr) try_known(*known);
  try_streamed();
  if (list_.empty()) return std::nullopt;
  if (keeps_ && !order_.empty()) {
    // Geometric: the difference between one slot and two matters more than that between ten and eleven.
    const double ratio = static_cast<double>(slab_) / static_cast<double>(smallest_region_);
    for (const StepId pause : table_.thresholds()) {
      if (known == nullptr) {
        for (int i = 0; i < kRegionSteps; ++i)
          try_policies(pause,
                       static_cast<Bytes>(static_cast<double>(smallest_region_) *
                                          std::pow(ratio, double(i) / kRegionSteps)),
                       {});
      } else {
        const double power = double(random(64)) / 64;
        try_policies(pause,
                     static_cast<Bytes>(static_cast<double>(smallest_region_) * std::pow(ratio, power)),
                     known->candidate.style);
        try_policies(pause, known->candidate.slab_bytes - evaluator_.resident_bytes(known->candidate.modes),
                     known->candidate.style);
      }
    }
  }
  if (!order_.empty()) {
    const std::size_t rest = left_;
    if (can_survey())
      survey(rest / 2);
    else
      wander(rest / 2);
    refine(true, rest / 4);
    refine(false, left_);
  }
  return list_.pick();
}

bool SlabSearch::attempt(const Candidate& candidate, Outcome& outcome) {
  if (left_ > 0) --left_;
  if (!evaluator_.evaluate(candidate, outcome)) return false;
  list_.offer(candidate, outcome);
  return true;
}

UnitModes SlabSearch::streamed(StepId longest_pause) const {
  UnitModes modes;
  for (const Unit& unit : problem_.units) modes.resident.push_back(unit.state);
  for (std::uint32_t i = 0; i < table_.pauses(); ++i)
    modes.leaves.push_back(table_.pause_steps(i) > longest_pause);
  return modes;
}

void SlabSearch::try_known(const Choice& known) {
  list_.offer(known.candidate, known.outcome);
  Candidate wider = known.candidate;
  wider.slab_bytes = slab_;
  Outcome outcome;
  attempt(wider, outcome);
  // What fits beside it.
  if (!keeps_) return;
  weigh_by_stalls();
  const Bytes region = known.candidate.slab_bytes - evaluator_.resident_bytes(known.candidate.modes);
  fill_by_weight(wider.modes, saturating_sub(slab_ - evaluator_.resident_bytes(wider.modes), region));
  attempt(wider, outcome);
}

void SlabSearch::try_streamed() {
  Outcome outcome;
  for (const StepId pause : table_.thresholds()) {
    Candidate candidate{.modes = streamed(pause), .slab_bytes = slab_};
    if (attempt(candidate, outcome) && !list_.empty()) continue;
    if (!list_.empty()) continue;
    for (const Placement placement : kPlacements) {
      candidate.style.placement = placement;
      attempt(candidate, outcome);
    }
  }
}

void SlabSearch::fill_in_order(UnitModes& modes, Bytes room) const {
  for (const UnitId unit : order_) {
    if (modes.resident[unit] || evaluator_.slot_bytes(unit) > room) continue;
    modes.resident[unit] = true;
    room -= evaluator_.slot_bytes(unit);
  }
}

/// Takes residents so that their bytes follow the weights in use order.
void SlabSearch::fill_by_weight(UnitModes& modes, Bytes room) {
  double total = 0;
  for (const UnitId unit : order_) {
    if (!modes.resident[unit]) total += weights_[unit];
  }
  if (total <= 0) return;
  const double scale = static_cast<double>(room) / total;
  double owed = 0;
  for (const UnitId unit : order_) {
    if (modes.resident[unit]) continue;
    const Bytes bytes = evaluator_.slot_bytes(unit);
    owed += weights_[unit] * scale;
    if (owed * 2 < static_cast<double>(bytes) || bytes > room) continue;
    modes.resident[unit] = true;
    room -= bytes;
    owed -= static_cast<double>(bytes);
  }
}

void SlabSearch::weigh_by_bytes() {
  for (const UnitId unit : order_) weights_[unit] = static_cast<double>(evaluator_.slot_bytes(unit));
}

/// A wait in the last evaluation counts for all units whose copies kept the link busy until its end.
void SlabSearch::weigh_by_stalls() {
  std::fill(weights_.begin(), weights_.end(), 0.0);
  const auto fetches = evaluator_.fetches();
  const auto stalls = evaluator_.stalls();
  const auto arrivals = evaluator_.arrivals();
  std::size_t begin = 0;
  double stall = 0;
  double copies = 0;
  for (std::size_t i = 0; i < fetches.size(); ++i) {
    const double copy_s = timeline_.copy_s(fetches[i].unit);
    stall += stalls[i];
    copies += copy_s;
    const bool last = i + 1 == fetches.size();
    const bool idle = !last && arrivals[i + 1] - timeline_.copy_s(fetches[i + 1].unit) > arrivals[i] + 1e-12;
    const bool ahead = !last && stalls[i] > 0 && stalls[i + 1] <= 0;
    if (!last && !idle && !ahead) continue;
    if (stall > 0) {
      for (; begin <= i; ++begin)
        weights_[fetches[begin].unit] += stall * timeline_.copy_s(fetches[begin].unit) / copies;
    }
    begin = i + 1;
    stall = copies = 0;
  }
}

void SlabSearch::try_policies(StepId longest_pause, Bytes region, const Style& style) {
  Candidate base{.modes = streamed(longest_pause), .slab_bytes = slab_, .style = style};
  const Bytes room = saturating_sub(slab_, region + evaluator_.resident_bytes(base.modes));
  if (room == 0) return;
  Outcome outcome;
  Candidate candidate = base;
  fill_in_order(candidate.modes, room);
  attempt(candidate, outcome);
  candidate = base;
  weigh_by_bytes();
  fill_by_weight(candidate.modes, room);
  attempt(candidate, outcome);
  candidate = base;
  for (Bytes portions = 3; portions > 0; --portions) {
    if (!attempt(candidate, outcome)) return;
    weigh_by_stalls();
    const Bytes taken = evaluator_.resident_bytes(candidate.modes);
    fill_by_weight(candidate.modes, saturating_sub(slab_, region + taken) / portions);
  }
  attempt(candidate, outcome);
}

void SlabSearch::change_style(Candidate& candidate) {
  candidate.style = {};
  if (few()) {
    candidate.style.placement = kPlacements[random(std::size(kPlacements) + 1) % std::size(kPlacements)];
    if (random(3) == 0) candidate.style.placement = Placement::by_size;
    candidate.style.depth = static_cast<std::uint8_t>(random(4));
    if (candidate.style.placement == Placement::by_size && random(2))
      candidate.style.seed = 1 + random(1U << 30);
  }
  candidate.style.order = kTieOrders[random(std::size(kTieOrders))];
}

/// Lets a unit stay, go, or leave in other pauses.
void SlabSearch::flip(UnitModes& modes, UnitId unit) {
  if (table_.can_leave(unit) && (!keeps_ || random(2) == 0)) {
    const std::uint32_t begin = table_.pause_begin(unit);
    const std::uint32_t end = table_.pause_begin(unit + 1);
    modes.resident[unit] = false;
    if (random(2) == 0) {
      const std::uint32_t pause = begin + random(end - begin);
      modes.leaves[pause] = !modes.leaves[pause];
    } else {
      std::fill(modes.leaves.begin() + begin, modes.leaves.begin() + end,
                static_cast<std::uint8_t>(random(2)));
    }
  } else if (keeps_) {
    modes.resident[unit] = !modes.resident[unit];
  }
}

/// From random places near the best ones or anywhere, downhill one change at a time.
void SlabSearch::wander(std::size_t evaluations) {
  const std::size_t stop = left_ > evaluations ? left_ - evaluations : 0;
  std::vector<UnitId> shuffled = order_;
  const auto shuffle = [&] {
    for (std::size_t i = shuffled.size(); i > 1; --i) std::swap(shuffled[i - 1], shuffled[random(i)]);
  };
  while (left_ > stop) {
    const Choice& start = random(2) == 0 ? list_.fastest() : list_.pick();
    Candidate candidate = start.candidate;
    candidate.slab_bytes = slab_;
    shuffle();
    if (random(2) == 0) {
      const std::size_t flips = 1 + random(3);
      for (std::size_t k = 0; k < flips && k < shuffled.size(); ++k) flip(candidate.modes, shuffled[k]);
    } else {
      const auto thresholds = table_.thresholds();
      candidate.modes = streamed(thresholds[random(thresholds.size())]);
      if (keeps_) {
        Bytes room = static_cast<Bytes>(
            static_cast<double>(slab_ - evaluator_.resident_bytes(candidate.modes)) * random(100) / 100.0);
        for (const UnitId unit : shuffled) {
          const Bytes bytes = evaluator_.slot_bytes(unit);
          if (bytes > room) continue;
          room -= bytes;
          candidate.modes.resident[unit] = true;
        }
      }
    }
    if (random(2) == 0) change_style(candidate);
    if (random(4) == 0) candidate.issue = random_issue();
    Outcome outcome;
    if (!attempt(candidate, outcome) || outcome.time_s > 1.15 * list_.fastest().outcome.time_s) continue;
    Choice now{candidate, outcome};
    shuffle();
    for (std::size_t k = 0; k < shuffled.size() && left_ > stop; ++k) {
      candidate = now.candidate;
      if (random(4) == 0)
        change_style(candidate);
      else
        flip(candidate.modes, shuffled[k]);
      if (attempt(candidate, outcome) && outcome.time_s < now.outcome.time_s) now = {candidate, outcome};
    }
  }
}

/// All ways to choose residents and pauses to leave in that fit and whose bound lies below the fastest so
/// far, each with that bound; the most promising first.
std::vector<std::pair<double, UnitModes>> SlabSearch::promising_modes() {
  std::vector<std::pair<double, UnitModes>> ranked;
  const std::size_t bits = (keeps_ ? order_.size() : 0) + table_.pauses();
  UnitModes modes = streamed(std::numeric_limits<StepId>::max());
  for (std::uint32_t code = 0; code < (1U << bits); ++code) {
    std::size_t bit = 0;
    if (keeps_) {
      for (const UnitId unit : order_) modes.resident[unit] = (code >> bit++) & 1U;
    }
    for (std::uint32_t pause = 0; pause < table_.pauses(); ++pause)
      modes.leaves[pause] = (code >> bit++) & 1U;
    bool twice = false;  // a resident's pauses do not matter
    for (const UnitId unit : order_) {
      for (std::uint32_t k = table_.pause_begin(unit); k < table_.pause_begin(unit + 1); ++k)
        twice = twice || (modes.resident[unit] && modes.leaves[k]);
    }
    if (twice || evaluator_.resident_bytes(modes) > slab_) continue;
    const double shortest_s = evaluator_.shortest_s(modes);
    if (shortest_s < list_.fastest().outcome.time_s) ranked.emplace_back(shortest_s, modes);
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  return ranked;
}

/// Every promising way to use units and pauses, with one layout after the other.
void SlabSearch::survey(std::size_t evaluations) {
  static constexpr Style kStyles[] = {
      {Placement::ring, TieOrder::large_first},       {Placement::by_size, TieOrder::large_first, 1},
      {Placement::two_ended, TieOrder::small_first},  {Placement::by_size, TieOrder::large_first, 2},
      {Placement::ring, TieOrder::small_first},       {Placement::alternating, TieOrder::earliest_first},
      {Placement::by_size, TieOrder::large_first, 0}, {Placement::two_ended, TieOrder::earliest_first},
      {Placement::by_size, TieOrder::large_first, 3}};
  static constexpr Issue kWithUploads[] = {Issue::early, Issue::yielding, Issue::behind, Issue::late};
  const std::size_t stop = left_ > evaluations ? left_ - evaluations : 0;
  const auto promising = promising_modes();
  ++surveys_;  // the next rung begins with another layout
  const std::size_t issues = timeline_.uploads().empty() ? 1 : std::size(kWithUploads);
  for (std::size_t k = 0; k < std::size(kStyles) + kShakenRounds && left_ > stop; ++k) {
    Style style = kStyles[(k + surveys_) % std::size(kStyles)];
    if (k >= std::size(kStyles))
      style = {.placement = Placement::by_size,
               .depth = static_cast<std::uint8_t>(random(3)),
               .seed = 1 + random(1U << 30)};
    for (const auto& [shortest_s, modes] : promising) {
      if (left_ <= stop || shortest_s >= list_.fastest().outcome.time_s) break;
      Outcome outcome;
      for (std::size_t i = 0; i < issues; ++i)
        attempt({.modes = modes, .slab_bytes = slab_, .style = style, .issue = kWithUploads[i]}, outcome);
    }
  }
}

/// Small changes to the fastest, or to the one that would be picked, kept where they are better.
void SlabSearch::refine(bool fastest, std::size_t evaluations) {
  const std::size_t stop = left_ > evaluations ? left_ - evaluations : 0;
  Choice now = fastest ? list_.fastest() : list_.pick();
  Outcome outcome;
  while (left_ > stop) {
    Candidate candidate = now.candidate;
    candidate.slab_bytes = slab_;
    switch (random(4)) {
      case 0:
        change_style(candidate);
        break;
      case 1:
        candidate.issue = random_issue();
        break;
      case 2:
        flip(candidate.modes, random_unit());
        break;
      default: {
        const UnitId a = random_unit();
        const UnitId b = random_unit();
        if (candidate.modes.resident[a] == candidate.modes.resident[b] || !keeps_) {
          flip(candidate.modes, a);
          flip(candidate.modes, b);
        } else {
          std::swap(candidate.modes.resident[a], candidate.modes.resident[b]);
        }
      }
    }
    if (!attempt(candidate, outcome)) continue;
    const bool better = fastest ? outcome.time_s < now.outcome.time_s : list_.better(outcome, now.outcome);
    if (better) now = {candidate, outcome};
  }
}

}  // namespace lowtide::plan
