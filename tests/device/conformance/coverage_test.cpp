// Tests of the suite itself: a check that no faulty device breaks proves nothing, and what is skipped is not
// kept.
#include <doctest/doctest.h>

#include <set>
#include <stdexcept>

#include "device/conformance/promise.hpp"
#include "device/conformance/tally.hpp"

using namespace lowtide::conformance;
using lowtide::device::DeviceKind;

TEST_CASE("every check of every promise is broken by some faulty device") {
  const Opened card = open_selected(DeviceKind::sim);
  if (!card.device) return;  // each faulty device has been tallied as skipped
  for (const Promise* promise : all_promises()) {
    DeviceUnderTest device(*card.device);
    std::set<std::string> unbroken = check(*promise, device).made();
    for (const Fault& fault : all_faults()) {
      if (fault.promise != promise) continue;
      const Checks checks = check(*promise, *fault.make(*card.device));
      for (const char* sentence : fault.checks) {
        if (checks.is_broken(sentence)) unbroken.erase(sentence);
      }
    }
    for (const std::string& sentence : unbroken)
      FAIL_CHECK(std::string(promise->sentence) << ": no faulty device breaks: " << sentence);
  }
}

TEST_CASE("a promise that was skipped does not count as passed, and the summary says why") {
  Tally tally;
  tally.passed();
  tally.skipped("cuda: no driver");
  tally.skipped("cuda: no driver");
  tally.skipped("cpu: no streams");
  CHECK(tally.summary() == "1 passed, 3 skipped (1 cpu: no streams; 2 cuda: no driver)");
  tally.failed();
  CHECK(tally.summary().starts_with("1 passed, 1 failed, 3 skipped"));
}

TEST_CASE("devices can be chosen, and a misspelt one is an error") {
  CHECK(is_selected(nullptr, "sim"));
  CHECK(is_selected("", "sim"));
  CHECK(is_selected("cuda,sim", "sim"));
  CHECK_FALSE(is_selected("cuda,sim", "cpu"));
  CHECK_THROWS_AS(is_selected("cuda,simm", "cpu"), std::invalid_argument);
}

TEST_CASE("a check that throws is broken, and so is a promise whose checks cannot be carried out") {
  Checks checks;
  checks.that("holds", [] { return true; });
  checks.that("throws", [&]() -> bool { throw std::runtime_error("first line\nsecond"); });
  CHECK_FALSE(checks.is_broken("holds"));
  CHECK(checks.is_broken("throws"));
  CHECK(to_text(checks.violations()) == "broken: throws (threw first line)\n");

  constexpr Promise kHopeless{"hopeless", Needs::nothing,
                              [](DeviceUnderTest&, Checks&) { throw std::runtime_error("no way"); }};
  DeviceUnderTest cpu(lowtide::device::Device::open({.kind = DeviceKind::cpu}));
  CHECK(check(kHopeless, cpu).violations().size() == 1);
}
