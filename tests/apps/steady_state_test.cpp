#include "lowtide/steady_state.hpp"

#include <doctest/doctest.h>

#include <random>

using namespace lowtide;
using namespace lowtide::app;

namespace {

Measured steady(std::size_t runs) {
  Measured measured;
  measured.first.wall_s = 2e-3;
  for (std::size_t i = 0; i < runs; ++i) {
    JobStats job;
    job.wall_s = 1e-3;
    job.peak_bytes = 5'000'000;
    job.used_after_bytes = 1'000'000;
    measured.jobs.push_back(job);
    measured.host_bytes.push_back(1e8);
  }
  measured.stats.peak_bytes = measured.stats.live_peak_bytes = measured.stats.reserved_peak_bytes = 5'000'000;
  measured.plan =
      PlanSummary{.peak_bytes = 5'000'000, .workspace_state = WorkspaceState::learned, .predicted_s = 1e-3};
  measured.cap_bytes = 8'000'000;
  return measured;
}

bool says(const Measured& measured, const char* words) {
  for (const std::string& line : advice(measured)) {
    if (line.find(words) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("a line is found exactly, with no doubt about it") {
  std::vector<double> values;
  for (int i = 0; i < 20; ++i) values.push_back(7 + 3.5 * i);
  const Trend trend = fit_trend(values);
  CHECK(trend.per_run == doctest::Approx(3.5));
  CHECK(trend.half_width == doctest::Approx(0).epsilon(1e-9));
  CHECK(trend.rises());
  CHECK(!trend.rises(3.5));
}

TEST_CASE("the interval is Student's: a hand-calculated case") {
  // Residuals -0.1, 0.3, -0.3, 0.1 around 1 + 2 x: slope 2, standard error 0.1414, t(2) = 4.303.
  const Trend trend = fit_trend({0.9, 3.3, 4.7, 7.1});
  CHECK(trend.per_run == doctest::Approx(2.0));
  CHECK(trend.half_width == doctest::Approx(4.303 * 0.141421).epsilon(0.02));
}

TEST_CASE("noise alone seldom passes for a rise, and a rise beneath noise is seen in time") {
  std::mt19937 random(5);
  std::normal_distribution<double> noise(0, 10);
  int false_alarms = 0, seen = 0;
  for (int trial = 0; trial < 400; ++trial) {
    std::vector<double> flat, rising;
    for (int i = 0; i < 30; ++i) {
      flat.push_back(noise(random));
      rising.push_back(noise(random) + i);
    }
    false_alarms += fit_trend(flat).rises();
    seen += fit_trend(rising).rises();
  }
  CHECK(false_alarms < 400 * 5 / 100);  // 2.5 % are expected
  CHECK(seen > 350);
}

TEST_CASE("too few values tell nothing") {
  CHECK(fit_trend({}).per_run == 0);
  CHECK(!fit_trend({1, 100}).rises());
  CHECK(median({3}) == 3);
  CHECK(median({4, 1, 3}) == 3);
  CHECK(median({4, 1, 3, 2}) == 2);
}

TEST_CASE("a steady run needs no advice") {
  CHECK(advice(steady(20)).empty());
}

TEST_CASE("each thing that is off is named") {
  Measured climbing = steady(20);
  for (std::size_t i = 0; i < 20; ++i) climbing.jobs[i].used_after_bytes = 1'000'000 + 512 * i;
  CHECK(says(climbing, "device memory rises by 512.0"));

  Measured leaking = steady(20);
  for (std::size_t i = 0; i < 20; ++i) leaking.host_bytes[i] += 1e5 * static_cast<double>(i);
  CHECK(says(leaking, "host memory rises"));

  Measured allocating = steady(20);
  allocating.jobs[7].driver_allocs = 3;
  CHECK(says(allocating, "3 allocations a run"));

  Measured unplanned = steady(20);
  for (JobStats& job : unplanned.jobs) {
    job.plan_hits = 75;
    job.plan_misses = 25;
  }
  CHECK(says(unplanned, "25.0 % of the requests for memory have no planned place"));

  Measured fragmented = steady(20);
  fragmented.stats.reserved_peak_bytes = 10'000'000;
  CHECK(says(fragmented, "50.0 % of what is reserved"));

  Measured slower = steady(20);
  slower.first.wall_s = 0.5e-3;
  CHECK(says(slower, "later runs are slower"));

  Measured bounded = steady(20);
  bounded.plan->workspace_state = WorkspaceState::bound;
  bounded.plan->workspace_bytes = 4096;
  CHECK(says(bounded, "upper bounds"));

  Measured waiting = steady(20);
  waiting.plan->stall_s = 0.5e-3;
  waiting.curve = {{.cap_bytes = 8'000'000, .predicted_s = 1e-3},
                   {.cap_bytes = 16_MiB, .predicted_s = 0.5e-3}};
  CHECK(says(waiting, "50.0 % of the time"));
  CHECK(says(waiting, "a cap of 16.0 MiB would take 0.500 ms"));
  waiting.after_job = AfterJob::release;  // a larger cap would not keep anything
  CHECK(says(waiting, "50.0 % of the time"));
  CHECK(!says(waiting, "a cap of"));
}

TEST_CASE("two settings stand side by side, with what the second is of the first") {
  Measured other = steady(5);
  for (JobStats& job : other.jobs) job.wall_s = 3e-3;
  for (const MeasuredRow& row : measured_rows({steady(5), other})) {
    CHECK(row.values.size() == 3);
    if (row.name == "later runs, median")
      CHECK(row.values == std::vector<std::string>{"1.000 ms", "3.000 ms", "3.000 x"});
  }
  for (const MeasuredRow& row : measured_rows({steady(5)})) CHECK(row.values.size() == 1);
}
