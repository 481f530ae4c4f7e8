#include "plan/slot_layout.hpp"

#include <algorithm>

#include "base/checked_math.hpp"

namespace lowtide::plan {
namespace {

/// How many places the ring looks at before it takes the best of them.
constexpr int kRingLook = 24;
/// In larger groups of equal first use the order is not worth the comparisons.
constexpr std::size_t kLargestGroup = 8;

}  // namespace

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

SlotLayout::SlotLayout(const ResidencyProblem& problem) {
  slots_.reserve(problem.units.size());
  for (const Unit& unit : problem.units) slots_.push_back(round_up(unit.bytes, kGranule));
}

void SlotLayout::reset(Bytes region_bytes) {
  region_bytes_ = region_bytes;
  issued_ = kBeforeFirstStep;
  from_end_ = false;
  nodes_.clear();
  unused_.clear();
  front_ = back_ = cursor_ = new_node({0, region_bytes, kBeforeFirstStep, kNoNode, kNoNode});
}

SlotLayout::NodeId SlotLayout::new_node(const Node& node) {
  if (unused_.empty()) {
    nodes_.push_back(node);
    return static_cast<NodeId>(nodes_.size() - 1);
  }
  const NodeId id = unused_.back();
  unused_.pop_back();
  nodes_[id] = node;
  return id;
}

/// The place that begins with this node (or, backwards, ends with it), if it is free in time. `next` is the
/// next node worth a look.
bool SlotLayout::spot_at(const Visit& visit, NodeId node, bool backwards, Spot& spot, NodeId& next) const {
  const Bytes size = slots_[visit.unit];
  std::int64_t busy = kBeforeFirstStep;
  Bytes covered = 0;
  NodeId at = node;
  while (true) {
    const Node& n = nodes_[at];
    const NodeId neighbour = backwards ? n.before : n.behind;
    busy = std::max(busy, n.busy_until);
    covered += n.end - n.begin;
    if (busy >= std::int64_t{visit.first} || (covered < size && neighbour == kNoNode)) {
      next = neighbour;
      return false;
    }
    if (covered >= size) break;
    at = neighbour;
  }
  next = backwards ? nodes_[node].before : nodes_[node].behind;
  spot.first = backwards ? at : node;
  spot.offset = backwards ? nodes_[node].end - size : nodes_[node].begin;
  spot.busy_until = busy;
  spot.issue = std::max(busy, issued_);
  return true;
}

/// The first place from the cursor on where the copy need not wait longer than the one before it, else the
/// best of some.
bool SlotLayout::find_ring(const Visit& visit, Spot& best) const {
  bool found = false;
  int looked = 0;
  const Bytes turn = nodes_[cursor_].begin;
  for (const bool wrapped : {false, true}) {
    NodeId node = wrapped ? front_ : cursor_;
    while (node != kNoNode && !(wrapped && nodes_[node].begin >= turn)) {
      Spot spot;
      if (!spot_at(visit, node, false, spot, node)) continue;
      if (!found || spot.issue < best.issue) best = spot;
      found = true;
      if (best.issue == issued_ || ++looked >= kRingLook) return true;
    }
  }
  return found;
}

bool SlotLayout::find(const Visit& visit, Placement placement, Spot& best) const {
  if (placement == Placement::ring) return find_ring(visit, best);
  const Bytes size = slots_[visit.unit];
  const bool from_end = (placement == Placement::two_ended && 2 * size <= largest_) ||
                        (placement == Placement::alternating && from_end_);
  bool found = false;
  for (const bool backwards : {false, true}) {
    if (placement != Placement::tightest && backwards != from_end) continue;
    NodeId node = backwards ? back_ : front_;
    while (node != kNoNode) {
      Spot spot;
      if (!spot_at(visit, node, backwards, spot, node)) continue;
      if (placement == Placement::tightest) {
        spot.rank = room_beside(spot, size);
        if (!found || spot.issue < best.issue || (spot.issue == best.issue && spot.rank < best.rank))
          best = spot;
        found = true;
        continue;
      }
      // Nodes come nearest first.
      if (!found || spot.issue < best.issue) best = spot;
      found = true;
      if (best.issue == issued_ || placement == Placement::compact) return true;
    }
  }
  return found;
}

/// Room around a spot that is free as early as the spot.
Bytes SlotLayout::room_beside(const Spot& spot, Bytes size) const {
  NodeId first = spot.first;
  while (nodes_[first].before != kNoNode && nodes_[nodes_[first].before].busy_until <= spot.issue)
    first = nodes_[first].before;
  NodeId last = spot.first;
  while (nodes_[last].behind != kNoNode && nodes_[nodes_[last].behind].busy_until <= spot.issue)
    last = nodes_[last].behind;
  return nodes_[last].end - nodes_[first].begin - size;
}

/// Replaces what overlaps the spot by the rest before it, the new tenant, and the rest behind it.
void SlotLayout::occupy(const Spot& spot, Bytes size, std::int64_t until) {
  const Bytes begin = spot.offset;
  const Bytes end = begin + size;
  const Node head = nodes_[spot.first];
  NodeId last = spot.first;
  while (true) {
    unused_.push_back(last);
    if (nodes_[last].end >= end) break;
    last = nodes_[last].behind;
  }
  const Node tail = nodes_[last];
  NodeId left = head.before;
  const NodeId right = tail.behind;
  const auto append = [&](Bytes from, Bytes to, std::int64_t busy_until) {
    const NodeId node = new_node({from, to, busy_until, left, kNoNode});
    (left == kNoNode ? front_ : nodes_[left].behind) = node;
    left = node;
  };
  const auto waits_for_nothing = [&](NodeId neighbour, std::int64_t busy_until) {
    return neighbour != kNoNode && std::max(nodes_[neighbour].busy_until, busy_until) <= issued_;
  };
  // Rests that can be had at once join such neighbours, so that they do not pile up.
  if (head.begin < begin) {
    if (waits_for_nothing(left, head.busy_until)) {
      nodes_[left].end = begin;
    } else {
      append(head.begin, begin, head.busy_until);
    }
  }
  append(begin, end, until);
  const NodeId tenant = left;
  if (tail.end > end) {
    if (waits_for_nothing(right, tail.busy_until)) {
      nodes_[right].begin = end;
    } else {
      append(end, tail.end, tail.busy_until);
    }
  }
  nodes_[left].behind = right;
  (right == kNoNode ? back_ : nodes_[right].before) = left;
  cursor_ = nodes_[tenant].behind == kNoNode ? front_ : nodes_[tenant].behind;
}

bool SlotLayout::place(std::span<Visit> visits, Bytes base, Bytes region_bytes, const Style& style,
                       std::vector<Fetch>& fetches) {
  fetches.clear();
  largest_ = 0;
  for (const Visit& visit : visits) largest_ = std::max(largest_, slots_[visit.unit]);
  if (largest_ > region_bytes) return false;
  if (style.placement == Placement::by_size) return place_by_size(visits, base, region_bytes, style, fetches);
  reset(region_bytes);
  std::size_t group_end = 0;
  for (std::size_t i = 0; i < visits.size(); ++i) {
    if (i == group_end) {
      while (group_end < visits.size() && visits[group_end].first == visits[i].first) ++group_end;
      if (style.order == TieOrder::small_first) std::reverse(visits.begin() + i, visits.begin() + group_end);
    }
    Spot spot;
    bool found = find(visits[i], style.placement, spot);
    if (style.order == TieOrder::earliest_first && group_end - i <= kLargestGroup) {
      std::size_t pick = i;
      for (std::size_t k = i + 1; k < group_end && !(found && spot.issue == issued_); ++k) {
        Spot other;
        if (!find(visits[k], style.placement, other) || (found && other.issue >= spot.issue)) continue;
        spot = other;
        found = true;
        pick = k;
      }
      std::rotate(visits.begin() + i, visits.begin() + pick, visits.begin() + pick + 1);
    }
    if (!found) return false;
    const Visit& visit = visits[i];
    issued_ = std::max(issued_, spot.issue);
    from_end_ = !from_end_;
    occupy(spot, slots_[visit.unit], visit.last);
    fetches.push_back({.unit = visit.unit,
                       .offset = base + spot.offset,
                       .free_after = spot.busy_until,
                       .first_use = visit.first,
                       .last_use = visit.last});
  }
  return true;
}

}  // namespace lowtide::plan
