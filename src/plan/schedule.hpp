// A fast simulation of one job under a residency plan: when each step runs and where compute waits for a
// copy. The rules are those of the simulated card's clocks: host, compute stream and link each have a time;
// copies run in the order of issue.
#pragma once

#include <vector>

#include "plan/residency_plan.hpp"

namespace lowtide::plan {

struct Schedule {
  double total_s = 0;
  double compute_s = 0;
  double copy_s = 0;
  double stall_s = 0;
  std::vector<double> fetch_stall_s;  // per fetch of the plan: how long compute waited for it
};

/// `first_job` also copies the resident units, as the first job of a batch (or every job that keeps nothing)
/// does.
Schedule simulate(const ResidencyProblem& problem, const std::vector<Fetch>& fetches, bool first_job);

}  // namespace lowtide::plan
