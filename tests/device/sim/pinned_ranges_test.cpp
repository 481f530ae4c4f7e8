#include "device/sim/pinned_ranges.hpp"

#include <doctest/doctest.h>

#include <array>

using lowtide::device::sim::PinnedRanges;

TEST_CASE("only ranges inside one locked range are pinned") {
  std::array<char, 100> memory{};
  PinnedRanges ranges;
  CHECK_FALSE(ranges.contains(memory.data(), 1));
  REQUIRE(ranges.lock(memory.data() + 10, 20));
  REQUIRE(ranges.lock(memory.data() + 30, 20));
  CHECK(ranges.bytes() == 40);
  CHECK(ranges.contains(memory.data() + 10, 20));
  CHECK(ranges.contains(memory.data() + 29, 1));
  CHECK_FALSE(ranges.contains(memory.data() + 9, 2));
  CHECK_FALSE(ranges.contains(memory.data() + 25, 10));  // across two ranges
  CHECK_FALSE(ranges.contains(memory.data() + 50, 0));
  CHECK(ranges.contains(memory.data() + 49, 0));
}

TEST_CASE("nothing is locked twice, not even in part") {
  std::array<char, 100> memory{};
  PinnedRanges ranges;
  REQUIRE(ranges.lock(memory.data() + 10, 20));
  CHECK_FALSE(ranges.lock(memory.data() + 10, 20));
  CHECK_FALSE(ranges.lock(memory.data(), 11));
  CHECK_FALSE(ranges.lock(memory.data() + 29, 10));
  CHECK_FALSE(ranges.lock(memory.data() + 15, 2));
  CHECK_FALSE(ranges.lock(memory.data() + 50, 0));
  CHECK_FALSE(ranges.lock(nullptr, 8));
  CHECK(ranges.lock(memory.data(), 10));
  CHECK(ranges.bytes() == 30);
}

TEST_CASE("a range is unlocked by its start, and unknown starts change nothing") {
  std::array<char, 100> memory{};
  PinnedRanges ranges;
  REQUIRE(ranges.lock(memory.data(), 50));
  CHECK_FALSE(ranges.unlock(memory.data() + 1));
  CHECK(ranges.bytes() == 50);
  CHECK(ranges.unlock(memory.data()));
  CHECK(ranges.bytes() == 0);
  CHECK_FALSE(ranges.contains(memory.data(), 1));
  CHECK(ranges.lock(memory.data() + 5, 5));
}
