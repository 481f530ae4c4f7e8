// The search beside an exhaustive one, and the fast simulation beside a plain one.
#include "exhaustive.hpp"

#include <doctest/doctest.h>

#include "plan/residency_search.hpp"
#include "plan/schedule.hpp"
#include "plan_support.hpp"
#include "small_problems.hpp"

using namespace lowtide;
using namespace lowtide::plan;
using test::Exhaustive;

namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr int kProblems = 2;  // unoptimised and instrumented
#else
constexpr int kProblems = 55;
#endif
constexpr double kNear = 1.03;

/// Step by step, as the card's clocks do it.
double plain_time(const ResidencyProblem& problem, const std::vector<Fetch>& fetches, bool first_job) {
  double host = problem.begin_host_s, compute = problem.begin_s, link = problem.begin_s;
  std::vector<double> arrival(fetches.size(), 0);
  std::size_t issued = 0;
  const auto issue = [&](std::int64_t step) {
    for (; issued < fetches.size() && fetches[issued].free_after <= step; ++issued) {
      const Fetch& fetch = fetches[issued];
      if (!first_job && fetch.resident && !problem.units[fetch.unit].state) continue;
      host += problem.link.launch_s;
      link = std::max({link, host, step < 0 ? 0.0 : compute}) + problem.link.latency_s +
             double(problem.units[fetch.unit].bytes) / problem.link.bytes_per_s;
      arrival[issued] = link;
    }
  };
  issue(-1);
  for (std::size_t step = 0; step < problem.steps.size(); ++step) {
    for (std::size_t i = 0; i < fetches.size(); ++i)
      if (fetches[i].first_use == step) compute = std::max(compute, arrival[i]);
    const StepCost& cost = problem.steps[step];
    host += cost.host_s;
    compute = std::max(compute, host);
    if (cost.upload_s > 0) compute = link = std::max(compute, link) + cost.upload_s;
    compute += cost.kernel_s;
    if (cost.waits) host = std::max(host, compute);
    issue(static_cast<std::int64_t>(step));
  }
  return std::max({host, compute, link}) + problem.end_s;
}

Bytes slab_at(const ResidencySearch& search, double share) {
  return search.min_slab_bytes() +
         static_cast<Bytes>(share * double(search.full_slab_bytes() - search.min_slab_bytes()));
}

}  // namespace

TEST_CASE("on graphs small enough to try every plan, the search stays within 3 % of the best of all") {
  std::mt19937 random(77);
  int compared = 0, complete = 0;
  for (int i = 0; i < kProblems; ++i) {
    std::string kind;
    const ResidencyProblem problem = test::small_problem(random, i, kind);
    const ResidencySearch search(problem);
    for (const bool keeps : {true, false}) {
      for (const double share : {0.0, 0.25, 0.6}) {
        const Bytes slab = slab_at(search, share);
        const double ours = search.plan(slab, keeps).predicted_s;
        Exhaustive exhaustive(problem, slab, keeps);
        // Nothing below this share of our time: then we are as near as we say.
        const double best = exhaustive.best_below(ours / kNear);
        CAPTURE(kind);
        CHECK_MESSAGE(best >= ours / kNear, "problem " << i << ": " << ours << " s, the best " << best);
        ++compared;
        complete += exhaustive.complete() ? 1 : 0;
      }
    }
  }
  MESSAGE(compared << " plans compared, " << complete << " with all others");
  CHECK(complete > compared * 9 / 10);
}

TEST_CASE("the fast simulation gives the plain one's times, for first and later jobs") {
  std::mt19937 random(5);
  for (int i = 0; i < kProblems; ++i) {
    std::string kind;
    ResidencyProblem problem = test::small_problem(random, i, kind);
    CAPTURE(kind);
    for (StepCost& step : problem.steps) step.waits = random() % 7 == 0;
    problem.begin_host_s = 1e-6 * double(random() % 40);
    const ResidencySearch search(problem);
    for (const double share : {0.0, 0.3, 1.0}) {
      const ResidencyPlan plan = search.plan(slab_at(search, share), true);
      for (const bool first : {true, false})
        CHECK(simulate(problem, plan.fetches, first).total_s ==
              doctest::Approx(plain_time(problem, plan.fetches, first)).epsilon(1e-12));
      CHECK(plan.predicted_s == doctest::Approx(plain_time(problem, plan.fetches, false)).epsilon(1e-12));
    }
  }
}

TEST_CASE("the time never rises with the slab, and plans of small problems keep every unit intact") {
  std::mt19937 random(13);
  for (int i = 0; i < kProblems; ++i) {
    std::string kind;
    const ResidencyProblem problem = test::small_problem(random, i, kind);
    CAPTURE(kind);
    const ResidencySearch search(problem);
    for (const bool keeps : {true, false}) {
      double smaller = INFINITY;
      for (int step = 0; step <= 20; ++step) {
        const ResidencyPlan plan = search.plan(slab_at(search, step / 20.0), keeps);
        CHECK(plan.predicted_s <= smaller);
        smaller = plan.predicted_s;
        CHECK(test::play(problem, plan, true) == "");
        if (keeps) CHECK(test::play(problem, plan, false) == "");
      }
      const Bytes some = slab_at(search, 0.4);
      CHECK(test::play(problem, search.quick(some, keeps), true) == "");
      CHECK(test::play(problem, search.prefix_plan(some, keeps), true) == "");
    }
  }
}

TEST_CASE("what the search buys: never slower than leading residents with one unit fetched ahead") {
  std::mt19937 random(21);
  for (int i = 0; i < kProblems; ++i) {
    std::string kind;
    const ResidencyProblem problem = test::small_problem(random, i, kind);
    CAPTURE(kind);
    const ResidencySearch search(problem);
    for (const double share : {0.1, 0.5, 0.9}) {
      const Bytes slab = slab_at(search, share);
      // A slab between two rungs gets the lower one's plan, so a little is granted.
      CHECK(search.plan(slab, true).predicted_s <= search.prefix_plan(slab, true).predicted_s * kNear);
    }
  }
}
