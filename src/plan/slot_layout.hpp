// Places the visits of streamed units in a region of the slab, so that each can be copied as early as
// possible.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/residency_plan.hpp"
#include "plan/visits.hpp"

namespace lowtide::plan {

/// Which place a visit takes. Which one is best depends on what comes later, so a search tries several. The
/// first six take visits in order; they take a place where the copy can be issued first, copies being issued
/// in order, and differ in what they prefer among those.
enum class Placement : std::uint8_t {
  ring,         // the next one behind the visit before. The only one that is fast for thousands of visits
  lowest,       // nearest the start of the region
  tightest,     // where the least free room is left beside it
  two_ended,    // large ones nearest the start, small ones nearest the end
  alternating,  // by turns nearest the start and nearest the end
  compact,      // nearest the start of all, even if its copy must wait: keeps long stretches whole
  by_size,      // the largest visit of all chooses first, and so on
};
inline constexpr Placement kPlacements[] = {Placement::ring,      Placement::lowest,      Placement::tightest,
                                            Placement::two_ended, Placement::alternating, Placement::compact,
                                            Placement::by_size};

/// In which order units come that are first used at the same step.
enum class TieOrder : std::uint8_t {
  large_first,  // they find a place less easily
  small_first,
  earliest_first,  // the one whose copy can be issued first
};
inline constexpr TieOrder kTieOrders[] = {TieOrder::large_first, TieOrder::small_first,
                                          TieOrder::earliest_first};

struct Style {
  Placement placement = Placement::ring;
  TieOrder order = TieOrder::large_first;  // by_size: earliest_first always
  /// by_size: a place is kept free from the first use of the visit so many before on, to be copied into.
  std::uint8_t depth = 1;
  /// by_size: not 0: the order is shaken and some visits go to the end of the region, differently for each
  /// seed.
  std::uint32_t seed = 0;
};

/// Beyond so many visits only Placement::ring is tried.
inline constexpr std::size_t kFewVisits = 64;

/// Places visits; keeps its memory from one time to the next.
class SlotLayout {
 public:
  explicit SlotLayout(const ResidencyProblem& problem);

  /// Offsets from `base` in a region of `region_bytes` for each visit; into `fetches`. Visits that are first
  /// used at the same step may change their order. False when some visit finds no place.
  bool place(std::span<Visit> visits, Bytes base, Bytes region_bytes, const Style& style,
             std::vector<Fetch>& fetches);
  Bytes slot_bytes(UnitId unit) const { return slots_[unit]; }

 private:
  using NodeId = std::uint32_t;
  static constexpr NodeId kNoNode = UINT32_MAX;

  /// A stretch of the region and the last step that needs what lies there now.
  struct Node {
    Bytes begin;
    Bytes end;
    std::int64_t busy_until;
    NodeId before;
    NodeId behind;
  };
  struct Spot {
    std::int64_t issue = 0;       // the step after which the copy can be issued
    std::int64_t busy_until = 0;  // of the former tenants
    Bytes rank = 0;               // lower is better
    Bytes offset = 0;
    NodeId first = kNoNode;
  };

  void reset(Bytes region_bytes);
  NodeId new_node(const Node& node);
  bool spot_at(const Visit& visit, NodeId node, bool backwards, Spot& spot, NodeId& next) const;
  bool find(const Visit& visit, Placement placement, Spot& spot) const;
  bool find_ring(const Visit& visit, Spot& spot) const;
  Bytes room_beside(const Spot& spot, Bytes size) const;
  void occupy(const Spot& spot, Bytes size, std::int64_t until);
  bool place_by_size(std::span<const Visit> visits, Bytes base, Bytes region_bytes, const Style& style,
                     std::vector<Fetch>& fetches) const;

  std::vector<Bytes> slots_;  // per unit
  Bytes region_bytes_ = 0;
  Bytes largest_ = 0;        // of the visits
  std::int64_t issued_ = 0;  // no copy can be issued before the ones in front of it
  bool from_end_ = false;    // alternating: the present turn
  std::vector<Node> nodes_;
  std::vector<NodeId> unused_;
  NodeId front_ = kNoNode;
  NodeId back_ = kNoNode;
  NodeId cursor_ = kNoNode;  // ring: where to go on
};

/// The smallest region found in which `visits` can be placed: the largest sum of simultaneous visits, or
/// slightly more. Sets the style that does it.
Bytes smallest_region(const ResidencyProblem& problem, std::span<Visit> visits, SlotLayout& layout,
                      Style& style);

}  // namespace lowtide::plan
