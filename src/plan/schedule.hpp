// A fast simulation of one job under a residency plan: when each step runs and where compute waits for a
// copy. The rules are those of the simulated card's clocks: host, compute stream and link each have a time;
// copies run in the order of issue.
//
// Between two events (a copy is issued, a copy is waited for, a step uploads) the steps only ever do
//   host' = host + a;  compute' = max(compute + b, host + c)
// and such maps compose to one of the same form. The timeline prepares them for all stretches of steps, so a
// simulation costs as much as there are copies, however many steps lie between.
#pragma once

#include <span>
#include <vector>

#include "plan/residency_plan.hpp"

namespace lowtide::plan {

/// A step that waits for copies, and how long.
struct StepStall {
  StepId step = 0;
  double seconds = 0;
};

struct Schedule {
  double total_s = 0;
  double compute_s = 0;
  double copy_s = 0;
  double stall_s = 0;
  std::vector<double> fetch_stall_s;   // per fetch of the plan: how long compute waited for it
  std::vector<StepStall> stall_steps;  // the same by step, in order of steps
};

/// The steps of one problem, which must outlive it. Building it costs O(n log n) for n steps.
class Timeline {
 public:
  explicit Timeline(const ResidencyProblem& problem);

  /// `first_job` also copies the resident units, as the first job of a batch (or every job that keeps
  /// nothing) does.
  Schedule simulate(std::span<const Fetch> fetches, bool first_job) const;
  /// Only the time, and for each fetch how long compute waited for it. All `fetches` travel. `stalls` and
  /// `arrivals` are scratch space of the caller, at least as long as `fetches`.
  double time(std::span<const Fetch> fetches, std::span<double> stalls, std::span<double> arrivals) const;
  /// When the device has finished each step, after time() has filled in `arrivals`.
  void finish_times(std::span<const Fetch> fetches, std::span<const double> arrivals,
                    std::vector<double>& finish) const;
  /// Kernels and uploads of this step and all after it.
  double busy_from(StepId step) const { return busy_from_[step]; }
  std::span<const StepId> uploads() const { return uploads_; }
  double copy_s(UnitId unit) const { return copy_s_[unit]; }
  /// Sum of all kernels.
  double compute_s() const { return kernel_before_.back(); }

 private:
  double latest_lead(std::size_t from, std::size_t to) const;

  const ResidencyProblem& problem_;
  std::vector<double> copy_s_;         // per unit: what one copy keeps the link busy
  std::vector<double> host_before_;    // per step, and at the end: sum of the host times before it
  std::vector<double> kernel_before_;  // the same of kernels
  std::vector<double> busy_from_;
  /// Row k, entry i: the largest of host_before_[m + 1] - kernel_before_[m] for the 2^k steps from i on.
  std::vector<std::vector<double>> lead_;
  std::vector<StepId> uploads_;
  std::vector<StepId> alone_;  // steps that are no such map: they upload, or the host waits for them
};

/// The same for a single question.
Schedule simulate(const ResidencyProblem& problem, const std::vector<Fetch>& fetches, bool first_job);

}  // namespace lowtide::plan
