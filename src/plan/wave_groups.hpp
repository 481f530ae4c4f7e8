// Where a wave may pause: groups of steps with few bytes alive between them, and what so many jobs need on
// the device beside the weights.
#pragma once

#include <span>
#include <vector>

#include "plan/walk.hpp"

namespace lowtide::plan {

/// What one job holds on the device beside the weights.
struct StepBytes {
  Bytes peak = 0;   // highest during the step
  Bytes after = 0;  // still alive when the step and what dies with it are gone
};

struct JobMemory {
  std::vector<StepBytes> steps;
  Bytes inputs = 0;  // before the first step

  Bytes peak() const;
  /// Alive before group `g` of a walk.
  Bytes before(const StepGroup& group) const {
    return group.begin == 0 ? inputs : steps[group.begin - 1].after;
  }
};

/// The larger of both at each point; for jobs of several shapes.
JobMemory largest_of(const JobMemory& a, const JobMemory& b);

/// What a wave needs at its highest. Jobs that do not run hold what is alive between groups, or, with
/// `spill`, nothing: it waits in host memory. Results leave the device as soon as a job has passed the last
/// group.
Bytes wave_bytes(const JobMemory& job, const Walk& walk, bool spill);

/// Of one job, what waits in host memory between the groups, summed over all of them; each way.
Bytes spilled_bytes(const JobMemory& job, const Walk& walk);

/// Groupings worth trying, without duplicates: from one group per step that needs new weights to few large
/// ones, with cuts where little is alive.
std::vector<std::vector<StepGroup>> candidate_groups(const Packing& packing, const JobMemory& job);

}  // namespace lowtide::plan
