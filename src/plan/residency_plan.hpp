// The residency plan as plain data: which unit is copied where and when. Carried out by residency/, decided
// by residency_search.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/residency_problem.hpp"

namespace lowtide::plan {

/// `free_after` of a fetch that needs to wait for no step.
inline constexpr std::int64_t kBeforeFirstStep = -1;

/// One copy of one unit into its slot of the slab.
struct Fetch {
  UnitId unit = 0;
  Bytes offset = 0;                            // in the slab, multiple of kGranule
  std::int64_t free_after = kBeforeFirstStep;  // last step that uses what lay there before: issue after it
  StepId first_use = 0;                        // must have arrived before this step
  StepId last_use = 0;                         // its bytes may be overwritten after this step
  bool resident = false;  // stays for the next job: copied once per batch, not once per job
};

struct ResidencyPlan {
  Bytes slab_bytes = 0;
  /// In order of first use. They are issued in this order: one fetch waits for the issue of all before it.
  std::vector<Fetch> fetches;
  Bytes resident_bytes = 0;  // exact bytes of resident units
  Bytes streamed_bytes = 0;  // exact bytes copied in every job from the second on, state included
  double predicted_s = 0;    // one job in the steady state
  double stall_s = 0;        // of that, compute waiting for copies
};

}  // namespace lowtide::plan
