// Places the visits of streamed units in a region of the slab, so that each can be copied as early as
// possible.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "plan/residency_plan.hpp"

namespace lowtide::plan {

/// A unit on the device from its first to its last use. A unit that is used again much later has several
/// visits.
struct Visit {
  UnitId unit = 0;
  StepId first = 0;
  StepId last = 0;
};

/// The visits of all units that are not in `resident`, by first use. Uses of one unit that are more than
/// `max_gap` steps apart become separate visits, except those of packed units.
std::vector<Visit> make_visits(const ResidencyProblem& problem, const std::vector<bool>& resident,
                               StepId max_gap);

/// Which of the places whose former tenants are no longer needed a visit takes.
enum class Placement {
  earliest_free,  // the one that became free first: copies can start early
  lowest,         // the one nearest the start: keeps long stretches whole for large units
};

/// Offsets from `base` in a region of `region_bytes` for each visit, chosen greedily. Nothing when some visit
/// finds no place.
std::optional<std::vector<Fetch>> place_visits(const ResidencyProblem& problem, std::span<const Visit> visits,
                                               Bytes base, Bytes region_bytes, Placement placement);

/// The smallest region found in which place_visits succeeds with one of the placements: the largest sum of
/// simultaneous visits, or slightly more where the greedy placement needs it.
Bytes smallest_region(const ResidencyProblem& problem, std::span<const Visit> visits);

}  // namespace lowtide::plan
