// `lowtide measure`: levels, slopes, two settings side by side.
#include <doctest/doctest.h>

#include "e2e_support.hpp"

using namespace lowtide::test;

TEST_CASE("measure prints the level that runs settle at, flat, and reports each run") {
  const Workplace place;
  const Reported run =
      place.reported({"measure", model("blocks_12x64").path.string(), "--device", "sim", "--runs", "8"});
  INFO(run.outcome.err);
  REQUIRE(run.outcome.code == 0);
  const std::string& page = run.outcome.out;
  CHECK(page.find("8 runs after 50 for warm-up") != std::string::npos);
  CHECK(page.find("slope of device memory     0.0 +- 0.0 B a run") != std::string::npos);
  CHECK(page.find("driver allocations a run   0\n") != std::string::npos);
  CHECK(run.jobs().size() == 8);
  CHECK(run.measured().at("device_allocs_steady") == 0);
  for (const auto& job : run.jobs()) CHECK(job.at("used_after_bytes") == run.measured().at("kept_bytes"));
}

TEST_CASE("measure --against puts a second setting beside the first") {
  const Workplace place;
  const Outcome run = place.lowtide({"measure", model("blocks_12x64").path.string(), "--device", "sim",
                                     "--runs", "3", "--against", "--after-job release"});
  INFO(run.err);
  CHECK(run.code == 0);
  CHECK(run.out.find("as given                   --after-job release") != std::string::npos);
  CHECK(run.out.find("0.000 x") != std::string::npos);  // nothing is kept between runs
}

TEST_CASE("measure --against takes options of device and memory that change something") {
  const Workplace place;
  for (const char* against :
       {"--after-job keep", "--runs 7", "other.safetensors", "--help", "--bogus", "--quiet", ""}) {
    CAPTURE(against);
    const Outcome run = place.lowtide(
        {"measure", model("blocks_12x64").path.string(), "--device", "sim", "--against", against});
    CHECK(run.code == 2);
    CHECK(run.last_error().find("--against") != std::string::npos);
    CHECK(run.out.empty());
  }
}
