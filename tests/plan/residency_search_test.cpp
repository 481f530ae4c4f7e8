#include "plan/residency_search.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <stdexcept>

#include "plan/schedule.hpp"
#include "plan_support.hpp"

using namespace lowtide;
using namespace lowtide::plan;
using test::equal_layers;
using test::play;

namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr int kProblems = 3;  // unoptimised and instrumented
#else
constexpr int kProblems = 50;
#endif

ResidencyProblem random_problem(std::mt19937& random) {
  ResidencyProblem problem;
  const std::size_t steps = 3 + random() % 40;
  for (std::size_t s = 0; s < steps; ++s) problem.steps.push_back({.kernel_s = 1e-6 * (1 + random() % 2000)});
  const std::size_t units = 1 + random() % 30;
  for (std::size_t u = 0; u < units; ++u) {
    Unit unit{.bytes = 1 + random() % (u % 7 == 0 ? 8000000 : 300000)};
    const std::size_t uses = 1 + (random() % 4 == 0 ? random() % 5 : 0);
    for (std::size_t i = 0; i < uses; ++i) unit.uses.push_back(static_cast<StepId>(random() % steps));
    std::sort(unit.uses.begin(), unit.uses.end());
    unit.uses.erase(std::unique(unit.uses.begin(), unit.uses.end()), unit.uses.end());
    unit.state = random() % 15 == 0;
    problem.units.push_back(std::move(unit));
  }
  return problem;
}

}  // namespace

TEST_CASE(
    "every plan of random problems keeps each unit intact while it is used, in the first and in later "
    "jobs") {
  std::mt19937 random(7);
  for (int i = 0; i < kProblems; ++i) {
    CAPTURE(i);
    const ResidencyProblem problem = random_problem(random);
    const ResidencySearch search(problem);
    REQUIRE(search.min_slab_bytes() <= search.full_slab_bytes());
    for (const int percent : {0, 10, 35, 70, 100, 130}) {
      const Bytes slab =
          search.min_slab_bytes() + (search.full_slab_bytes() - search.min_slab_bytes()) * percent / 100;
      for (const bool keeps : {true, false}) {
        const ResidencyPlan plan = search.plan(slab, keeps);
        CHECK(plan.slab_bytes <= std::max(slab, search.min_slab_bytes()));
        CHECK(play(problem, plan, true) == "");
        if (keeps) CHECK(play(problem, plan, false) == "");
      }
    }
  }
}

TEST_CASE("the check itself notices a slot that is overwritten too early") {
  const ResidencyProblem problem = equal_layers(6, 1 << 20, 1e-4);
  const ResidencySearch search(problem);
  ResidencyPlan plan = search.plan(2 << 20, false);
  REQUIRE(play(problem, plan, true) == "");
  for (Fetch& fetch : plan.fetches) fetch.free_after = std::max(fetch.free_after - 1, kBeforeFirstStep);
  CHECK(play(problem, plan, true) != "");
}

TEST_CASE("the smallest slab is the largest sum of units used at once") {
  ResidencyProblem problem = equal_layers(4, 1000, 1e-5);
  CHECK(ResidencySearch(problem).min_slab_bytes() == 1024);
  problem.units.push_back({.bytes = 5000, .uses = {2}});
  CHECK(ResidencySearch(problem).min_slab_bytes() == 1024 + 5120);
  CHECK_THROWS_AS(ResidencySearch(problem).plan(1024 + 5120 - 512, true), std::logic_error);
}

TEST_CASE("state stays for the whole job and travels in every job") {
  ResidencyProblem problem = equal_layers(4, 1 << 20, 1e-4);
  problem.units[1].state = true;
  const ResidencySearch search(problem);
  CHECK(search.min_slab_bytes() == 2 << 20);
  const ResidencyPlan full = search.plan(search.full_slab_bytes(), true);
  CHECK(full.streamed_bytes == 1 << 20);
  CHECK(full.resident_bytes == 3 << 20);
}

TEST_CASE("with room for everything nothing is streamed; without keeping, everything travels once") {
  const ResidencyProblem problem = equal_layers(8, 4 << 20, 1e-3);
  const ResidencySearch search(problem);
  CHECK(search.plan(search.full_slab_bytes(), true).streamed_bytes == 0);
  CHECK(search.plan(search.full_slab_bytes(), false).streamed_bytes == problem.exact_bytes());
  CHECK(search.plan(search.min_slab_bytes(), false).streamed_bytes == problem.exact_bytes());
}

TEST_CASE(
    "equal layers whose copies hide behind compute run at compute speed from two slots and the first layer "
    "on") {
  // A copy takes 10 us + 4 MiB / 24 GB/s = 185 us, a step 1 ms.
  const ResidencyProblem problem = equal_layers(16, 4 << 20, 1e-3);
  const ResidencySearch search(problem);
  const double compute = 16 * 1e-3;
  CHECK(search.plan(12 << 20, true).predicted_s < compute * 1.005);
  CHECK(search.plan(8 << 20, false).predicted_s < compute * 1.02);
}

TEST_CASE("a link-bound pass is within 5 % of the time the streamed bytes need") {
  const ResidencyProblem problem = equal_layers(32, 8 << 20, 1e-5);
  const ResidencySearch search(problem);
  const ResidencyPlan plan = search.plan(64 << 20, true);
  const double copies = double(plan.streamed_bytes) / problem.link.bytes_per_s +
                        (double(plan.streamed_bytes) / (8 << 20)) * problem.link.latency_s;
  CHECK(plan.predicted_s < copies * 1.05);
  CHECK(plan.resident_bytes >= 40 << 20);
}

TEST_CASE("packed units travel once a pass, however far apart their uses are") {
  ResidencyProblem problem = equal_layers(40, 1 << 20, 1e-5);
  problem.units.push_back({.bytes = 1 << 20, .uses = {0, 13, 39}, .packed = true});
  const ResidencySearch search(problem);
  for (const Bytes slab : {search.min_slab_bytes(), search.min_slab_bytes() + (4 << 20)})
    CHECK(search.plan(slab, false).streamed_bytes == problem.exact_bytes());
}

TEST_CASE("a unit used at both ends of a pass may be copied twice rather than block the slab") {
  ResidencyProblem problem = equal_layers(10, 1 << 20, 1e-4);
  problem.units[0].uses = {0, 9};
  problem.units.erase(problem.units.begin() + 9);
  const ResidencySearch search(problem);
  CHECK(search.min_slab_bytes() == 1 << 20);
  const ResidencyPlan plan = search.plan(1 << 20, false);
  CHECK(play(problem, plan, true) == "");
  CHECK(plan.streamed_bytes == 10 << 20);
}

TEST_CASE("the schedule agrees with a hand-calculated case") {
  // Two layers through one slot: copy 0, run 0, copy 1 after it, run 1.
  ResidencyProblem problem = equal_layers(2, 24000, 100e-6);
  problem.link = {.bytes_per_s = 24e9, .latency_s = 10e-6, .launch_s = 5e-6};
  const std::vector<Fetch> fetches{{.unit = 0, .first_use = 0, .last_use = 0},
                                   {.unit = 1, .free_after = 0, .first_use = 1, .last_use = 1}};
  const Schedule schedule = simulate(problem, fetches, true);
  // 5 us to issue, 11 us copy -> 16; step 0: 16..116; copy 1: 116..127; step 1: 127..227.
  CHECK(schedule.total_s == doctest::Approx(227e-6));
  CHECK(schedule.copy_s == doctest::Approx(22e-6));
  CHECK(schedule.stall_s == doctest::Approx(11e-6 + 11e-6));
}

TEST_CASE("what comes from a slow source takes its time, and stays first") {
  ResidencyProblem problem;
  for (StepId i = 0; i < 8; ++i) {
    problem.units.push_back({.bytes = 8 << 20, .uses = {i}});
    problem.steps.push_back({.kernel_s = 1e-5});
  }
  const double fast = ResidencySearch(problem).plan(16 << 20, true).predicted_s;
  problem.units[5].source_bytes_per_s = 1e9;
  const ResidencySearch search(problem);
  const ResidencyPlan streamed = search.plan(search.min_slab_bytes(), true);
  CHECK(streamed.predicted_s > fast + (8 << 20) / 1.1e9);
  const ResidencyPlan plan = search.plan(24 << 20, true);
  for (const Fetch& fetch : plan.fetches)
    if (fetch.unit == 5) CHECK(fetch.resident);
  CHECK(plan.predicted_s < streamed.predicted_s - (8 << 20) / 1.1e9);
}
