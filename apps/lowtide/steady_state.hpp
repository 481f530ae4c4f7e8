// What repeated runs of one job tell: the level they settle at, whether it climbs, and what to do about it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lowtide/session.hpp"

namespace lowtide::app {

/// A straight line through values that were taken one a run.
struct Trend {
  double per_run = 0;
  double half_width = 0;  // of the 95 % confidence interval of per_run

  /// More than chance, and more than `least` a run.
  bool rises(double least = 0) const { return per_run - half_width > least; }
};

/// Least squares; zero for fewer than three values.
Trend fit_trend(const std::vector<double>& values);

/// The middle one; of an even number the lower of the two. At least one.
double median(std::vector<double> values);

/// One setting, measured.
struct Measured {
  std::string setting;              // for the head of a column
  JobStats first;                   // the very first run
  std::vector<JobStats> jobs;       // after the warm-up
  std::vector<double> host_bytes;   // resident memory of the process after each of them
  SessionStats stats;               // of the whole session
  std::optional<PlanSummary> plan;  // nothing on the cpu
  std::optional<Bytes> cap_bytes;
  std::vector<CapPoint> curve;
  AfterJob after_job = AfterJob::keep;
};

/// A line of the page: a name and one text for each setting.
struct MeasuredRow {
  std::string name;
  std::vector<std::string> values;
};

/// What was measured, a column for each setting; beside two of them, what the second is of the first.
std::vector<MeasuredRow> measured_rows(const std::vector<Measured>& settings);

/// What is off and what helps, a sentence each. Empty when all is well.
std::vector<std::string> advice(const Measured& measured);

}  // namespace lowtide::app
