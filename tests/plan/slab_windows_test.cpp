#include "plan/slab_windows.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <random>

using namespace lowtide;
using plan::WindowOption;

namespace {

using Options = std::vector<std::vector<WindowOption>>;

Options random_options(std::mt19937& random, std::size_t models) {
  Options options(models);
  for (auto& of_model : options) {
    Bytes bytes = 1 + random() % 20;
    double seconds = 50 + static_cast<double>(random() % 50);
    for (std::size_t i = 0; i < 1 + random() % 6; ++i) {
      of_model.push_back({bytes, seconds});
      bytes += 1 + random() % 20;
      seconds -= static_cast<double>(random() % 8);
    }
  }
  return options;
}

/// The least time over all combinations.
double least_seconds(const Options& options, Bytes room, std::size_t model = 0) {
  if (model == options.size()) return 0;
  double least = std::numeric_limits<double>::infinity();
  for (const WindowOption& option : options[model]) {
    if (option.bytes <= room)
      least = std::min(least, option.seconds + least_seconds(options, room - option.bytes, model + 1));
  }
  return least;
}

}  // namespace

TEST_CASE("the slab is divided in the way that takes the least time of all") {
  std::mt19937 random(7);
  int refused = 0;
  for (int problem = 0; problem < 300; ++problem) {
    const Options options = random_options(random, 1 + random() % 4);
    const Bytes room = random() % 150;
    const double least = least_seconds(options, room);
    const auto chosen = plan::divide_slab(options, room);
    CAPTURE(problem);
    REQUIRE(chosen.has_value() == std::isfinite(least));
    refused += !chosen;
    if (!chosen) continue;
    REQUIRE(chosen->size() == options.size());
    Bytes bytes = 0;
    double seconds = 0;
    for (std::size_t m = 0; m < options.size(); ++m) {
      bytes += options[m][(*chosen)[m]].bytes;
      seconds += options[m][(*chosen)[m]].seconds;
    }
    CHECK(bytes <= room);
    CHECK(seconds == doctest::Approx(least));
  }
  CHECK(refused > 10);
  CHECK(refused < 290);
}

TEST_CASE("a window that is larger but no faster is not taken") {
  const auto chosen = plan::divide_slab({{{10, 5.0}, {20, 5.0}, {30, 4.0}}, {{10, 1.0}}}, 35);
  REQUIRE(chosen);
  CHECK(chosen->front() == 0);
}

TEST_CASE("no models need no room") {
  CHECK(plan::divide_slab({}, 0)->empty());
}
