#include "plan/schedule.hpp"

#include <algorithm>
#include <bit>
#include <limits>

namespace lowtide::plan {

Timeline::Timeline(const ResidencyProblem& problem) : problem_(problem) {
  const std::size_t steps = problem.steps.size();
  copy_s_.reserve(problem.units.size());
  for (const Unit& unit : problem.units) {
    const double rate = unit.source_bytes_per_s > 0
                            ? std::min(unit.source_bytes_per_s, problem.link.bytes_per_s)
                            : problem.link.bytes_per_s;
    copy_s_.push_back(problem.link.latency_s + static_cast<double>(unit.bytes) / rate);
  }

  host_before_.resize(steps + 1);
  kernel_before_.resize(steps + 1);
  lead_.emplace_back(steps);
  for (std::size_t i = 0; i < steps; ++i) {
    const StepCost& cost = problem.steps[i];
    host_before_[i + 1] = host_before_[i] + cost.host_s;
    kernel_before_[i + 1] = kernel_before_[i] + cost.kernel_s;
    lead_[0][i] = host_before_[i + 1] - kernel_before_[i];
    if (cost.upload_s > 0) uploads_.push_back(static_cast<StepId>(i));
    if (cost.upload_s > 0 || cost.waits) alone_.push_back(static_cast<StepId>(i));
  }
  busy_from_.resize(steps + 1);
  for (std::size_t i = steps; i-- > 0;)
    busy_from_[i] = busy_from_[i + 1] + problem.steps[i].kernel_s + problem.steps[i].upload_s;
  for (std::size_t half = 1; 2 * half <= steps; half *= 2) {
    const std::vector<double>& shorter = lead_.back();
    std::vector<double> row(steps + 1 - 2 * half);
    for (std::size_t i = 0; i < row.size(); ++i) row[i] = std::max(shorter[i], shorter[i + half]);
    lead_.push_back(std::move(row));
  }
}

/// By how much the host of the steps [from, to) lags behind the kernels before them, at most.
double Timeline::latest_lead(std::size_t from, std::size_t to) const {
  const std::size_t row = static_cast<std::size_t>(std::bit_width(to - from)) - 1;
  const std::vector<double>& leads = lead_[row];
  return std::max(leads[from], leads[to - (std::size_t{1} << row)]);
}

double Timeline::time(std::span<const Fetch> fetches, std::span<double> stalls,
                      std::span<double> arrivals) const {
  constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
  const std::size_t end = problem_.steps.size();
  // Both clocks are kept less what all steps so far take by themselves, so that only events change them:
  //   host = host_extra + host_before_[done],  compute = compute_extra + kernel_before_[done].
  double host_extra = problem_.begin_host_s;
  double compute_extra = problem_.begin_s;
  double link = problem_.begin_s;
  std::size_t done = 0;  // steps that have been submitted
  std::size_t next_issue = 0;
  std::size_t next_use = 0;
  std::size_t next_alone = 0;

  while (true) {
    while (next_issue < fetches.size() &&
           fetches[next_issue].free_after < static_cast<std::int64_t>(done)) {  // after step done - 1
      const Fetch& fetch = fetches[next_issue];
      host_extra += problem_.link.launch_s;
      const double host = host_extra + host_before_[done];
      const double space_free =
          fetch.free_after == kBeforeFirstStep ? 0.0 : compute_extra + kernel_before_[done];
      link = std::max({link, host, space_free}) + copy_s_[fetch.unit];
      arrivals[next_issue++] = link;
    }
    for (; next_use < fetches.size() && fetches[next_use].first_use <= done; ++next_use) {
      const double compute = compute_extra + kernel_before_[done];
      const double host = host_extra + host_before_[done];
      stalls[next_use] = std::max(0.0, arrivals[next_use] - std::max(compute, host));
      compute_extra = std::max(compute, arrivals[next_use]) - kernel_before_[done];
    }
    if (next_alone < alone_.size() && alone_[next_alone] == done) {
      const StepCost& cost = problem_.steps[done];
      const double host = host_extra + host_before_[done + 1];
      double compute = std::max(compute_extra + kernel_before_[done], host);
      if (cost.upload_s > 0) compute = link = std::max(compute, link) + cost.upload_s;
      compute_extra = compute - kernel_before_[done];
      if (cost.waits) host_extra = compute + cost.kernel_s - host_before_[done + 1];
      ++done;
      ++next_alone;
      continue;
    }
    if (done == end) break;
    std::size_t stop = next_alone < alone_.size() ? alone_[next_alone] : end;
    if (next_use < fetches.size()) stop = std::min<std::size_t>(stop, fetches[next_use].first_use);
    const std::size_t issue =
        next_issue < fetches.size() ? static_cast<std::size_t>(fetches[next_issue].free_after + 1) : kNone;
    stop = std::min(stop, issue);
    compute_extra = std::max(compute_extra, host_extra + latest_lead(done, stop));
    done = stop;
  }
  return std::max({host_extra + host_before_[end], compute_extra + kernel_before_[end], link}) +
         problem_.end_s;
}

void Timeline::finish_times(std::span<const Fetch> fetches, std::span<const double> arrivals,
                            std::vector<double>& finish) const {
  finish.resize(problem_.steps.size());
  double host = problem_.begin_host_s;
  double compute = problem_.begin_s;
  double link = problem_.begin_s;
  std::size_t next_issue = 0;
  std::size_t next_use = 0;
  for (std::size_t step = 0; step < finish.size(); ++step) {
    for (; next_issue < fetches.size() && fetches[next_issue].free_after < static_cast<std::int64_t>(step);
         ++next_issue) {
      host += problem_.link.launch_s;
      link = arrivals[next_issue];
    }
    for (; next_use < fetches.size() && fetches[next_use].first_use <= step; ++next_use)
      compute = std::max(compute, arrivals[next_use]);
    const StepCost& cost = problem_.steps[step];
    host += cost.host_s;
    if (cost.upload_s > 0) compute = link = std::max({compute, host, link}) + cost.upload_s;
    finish[step] = compute = std::max(compute, host) + cost.kernel_s;
    if (cost.waits) host = compute;
  }
}

Schedule Timeline::simulate(std::span<const Fetch> fetches, bool first_job) const {
  // Copies that stay from job to job cost nothing in the steady state; state is written and travels every
  // time.
  std::vector<Fetch> travelling;
  std::vector<std::size_t> index;
  for (std::size_t i = 0; i < fetches.size(); ++i) {
    const Fetch& fetch = fetches[i];
    if (!first_job && fetch.resident && !problem_.units[fetch.unit].state) continue;
    travelling.push_back(fetch);
    index.push_back(i);
  }
  std::vector<double> stalls(travelling.size());
  std::vector<double> arrivals(travelling.size());
  Schedule result{.compute_s = compute_s(), .fetch_stall_s = std::vector<double>(fetches.size(), 0.0)};
  result.total_s = time(travelling, stalls, arrivals);
  for (std::size_t i = 0; i < travelling.size(); ++i) {
    result.copy_s += copy_s_[travelling[i].unit];
    result.stall_s += stalls[i];
    result.fetch_stall_s[index[i]] = stalls[i];
    if (stalls[i] == 0) continue;
    const StepId step = travelling[i].first_use;
    if (result.stall_steps.empty() || result.stall_steps.back().step != step)
      result.stall_steps.push_back({.step = step});
    result.stall_steps.back().seconds += stalls[i];
  }
  return result;
}

Schedule simulate(const ResidencyProblem& problem, const std::vector<Fetch>& fetches, bool first_job) {
  return Timeline(problem).simulate(fetches, first_job);
}

}  // namespace lowtide::plan
