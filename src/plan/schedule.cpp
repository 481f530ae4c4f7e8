#include "plan/schedule.hpp"

#include <algorithm>

namespace lowtide::plan {

Schedule simulate(const ResidencyProblem& problem, const std::vector<Fetch>& fetches, bool first_job) {
  Schedule result;
  result.fetch_stall_s.assign(fetches.size(), 0.0);
  std::vector<double> arrival(fetches.size(), 0.0);
  double host = problem.begin_host_s;
  double compute = problem.begin_s;
  double link = problem.begin_s;
  std::size_t next_issue = 0;

  // Copies that stay from job to job cost nothing in the steady state; state is written and travels every
  // time.
  const auto travels = [&](const Fetch& fetch) {
    return first_job || !fetch.resident || problem.units[fetch.unit].state;
  };
  const auto issue_up_to = [&](std::int64_t step) {
    for (; next_issue < fetches.size() && fetches[next_issue].free_after <= step; ++next_issue) {
      const Fetch& fetch = fetches[next_issue];
      if (!travels(fetch)) continue;
      host += problem.link.launch_s;
      const double duration = problem.link.latency_s +
                              static_cast<double>(problem.units[fetch.unit].bytes) / problem.link.bytes_per_s;
      const double space_free = fetch.free_after == kBeforeFirstStep ? 0.0 : compute;
      link = std::max({link, host, space_free}) + duration;
      result.copy_s += duration;
      arrival[next_issue] = link;
    }
  };

  issue_up_to(kBeforeFirstStep);
  std::size_t next_use = 0;  // fetches are sorted by first use
  for (std::size_t step = 0; step < problem.steps.size(); ++step) {
    for (; next_use < fetches.size() && fetches[next_use].first_use == step; ++next_use) {
      const double wait = arrival[next_use] - std::max(compute, host);
      if (wait > 0) {
        result.fetch_stall_s[next_use] = wait;
        result.stall_s += wait;
      }
      compute = std::max(compute, arrival[next_use]);
    }
    const StepCost& cost = problem.steps[step];
    host += cost.host_s;
    if (cost.upload_s > 0) compute = link = std::max({compute, host, link}) + cost.upload_s;
    compute = std::max(compute, host) + cost.kernel_s;
    result.compute_s += cost.kernel_s;
    issue_up_to(static_cast<std::int64_t>(step));
  }
  result.total_s = std::max({host, compute, link}) + problem.end_s;
  return result;
}

}  // namespace lowtide::plan
