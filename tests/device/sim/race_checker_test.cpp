// What orders two pieces of work, and what does not: the rules of the race checker on bare memory ranges.
#include "device/sim/race_checker.hpp"

#include <doctest/doctest.h>

#include <array>

using namespace lowtide::device::sim;

namespace {

struct Fixture {
  /// One piece of work of `stream` touches bytes [from, to).
  std::optional<MemoryUse> use(StreamNumber stream, bool writes, std::size_t from = 0, std::size_t to = 100) {
    const std::uint64_t tick = races.submit(stream);
    return races.touch({memory.data() + from, to - from},
                       {.stream = stream, .tick = tick, .writes = writes, .work = "work"});
  }
  std::optional<MemoryUse> write(StreamNumber stream, std::size_t from = 0, std::size_t to = 100) {
    return use(stream, true, from, to);
  }
  std::optional<MemoryUse> read(StreamNumber stream, std::size_t from = 0, std::size_t to = 100) {
    return use(stream, false, from, to);
  }
  /// `later` waits for all that `earlier` has been given so far.
  void edge(StreamNumber earlier, StreamNumber later) { races.stream_waits(later, races.clock(earlier)); }

  RaceChecker races;
  std::array<char, 1000> memory{};
  MemoryRange block{memory.data(), 100};
};

}  // namespace

TEST_CASE_FIXTURE(Fixture,
                  "a read is ordered after a write of its own stream, and of no other without an edge") {
  write(1);
  CHECK_FALSE(read(1));
  const auto conflict = read(2);
  REQUIRE(conflict.has_value());
  CHECK(conflict->stream == 1);
  CHECK(conflict->writes);
  write(1);
  edge(1, 2);
  CHECK_FALSE(read(2));
}

TEST_CASE_FIXTURE(Fixture, "an edge covers what was submitted before it and nothing after") {
  write(1);
  edge(1, 2);
  write(1);
  CHECK(read(2));
}

TEST_CASE_FIXTURE(Fixture,
                  "edges carry on: what a stream has waited for is known to those that wait for it") {
  write(1);
  edge(1, 2);
  read(2, 500, 510);
  edge(2, 3);
  CHECK_FALSE(write(3));
}

TEST_CASE_FIXTURE(Fixture, "a write must be ordered after every read, a read only after the last write") {
  write(1);
  edge(1, 2);
  edge(1, 3);
  read(2);
  read(3);
  CHECK_FALSE(read(1));
  edge(2, 1);
  const auto conflict = write(1);
  REQUIRE(conflict.has_value());
  CHECK(conflict->stream == 3);
  CHECK_FALSE(conflict->writes);
}

TEST_CASE_FIXTURE(Fixture, "what the host has waited for lies before everything that it submits afterwards") {
  write(1);
  races.host_waits(races.clock(1));
  CHECK_FALSE(read(2));
  CHECK_FALSE(races.host_touches(block, false));
  write(2);
  CHECK(races.host_touches(block, false));
  races.host_waits_for_all();
  CHECK_FALSE(races.host_touches(block, true));
}

TEST_CASE_FIXTURE(Fixture, "only the bytes that are touched count") {
  write(1, 0, 50);
  write(2, 50, 100);
  CHECK_FALSE(read(1, 10, 50));
  CHECK_FALSE(read(2, 50, 60));
  CHECK(read(1, 40, 51)->stream == 2);
  CHECK(write(2, 49, 60)->stream == 1);
}

TEST_CASE_FIXTURE(Fixture, "a range that spans earlier uses with gaps between them meets each of them") {
  write(1, 10, 20);
  write(2, 30, 40);
  edge(1, 3);
  edge(2, 3);
  CHECK_FALSE(read(3, 0, 100));
  CHECK(write(1, 0, 5)->stream == 3);  // the gaps were read as well
  CHECK(write(2, 24, 26)->stream == 3);
  CHECK(write(1, 90, 100)->stream == 3);
}

TEST_CASE_FIXTURE(Fixture, "a new block may still be in use by earlier work of its own stream") {
  read(1, 500, 600);  // the stream has worked before
  races.allocated(block, 1);
  CHECK_FALSE(write(1));
  races.released(block, 1, 0);
  races.allocated(block, 1);
  CHECK(write(2)->stream == 1);
  races.released(block, 1, 1 << 2);
  races.allocated(block, 1);
  edge(1, 2);
  CHECK_FALSE(write(2));
}

TEST_CASE_FIXTURE(Fixture,
                  "a block that another stream still uses must not go back to its own stream's pool") {
  races.allocated(block, 1);
  edge(1, 2);
  SUBCASE("without an order it is a race, which names the use") {
    read(2);
    const auto conflict = races.released(block, 1, 0);
    REQUIRE(conflict.has_value());
    CHECK(conflict->stream == 2);
  }
  SUBCASE("an edge back is enough") {
    read(2);
    edge(2, 1);
    CHECK_FALSE(races.released(block, 1, 0));
  }
  SUBCASE("the host's waiting is enough") {
    read(2);
    races.host_waits_for_all();
    CHECK_FALSE(races.released(block, 1, 0));
  }
  SUBCASE("recording the stream is enough") {
    read(2);
    CHECK_FALSE(races.released(block, 1, 1 << 2));
  }
}

TEST_CASE_FIXTURE(Fixture, "page-locked memory may be unlocked when the host has waited for its copies") {
  read(3);
  CHECK(races.retired(block)->stream == 3);
  read(3);
  races.host_waits_for_all();
  CHECK_FALSE(races.retired(block));
}

TEST_CASE_FIXTURE(Fixture, "switched off, it finds nothing and remembers nothing") {
  races.restart(false);
  write(1);
  CHECK_FALSE(read(2));
  CHECK_FALSE(races.released(block, 1, 0));
}

TEST_CASE("a use is described by what did it, to which argument, on which stream") {
  CHECK(RaceChecker::describe({.stream = 3, .tick = 1, .writes = true, .work = "a copy to the card"}) ==
        "its write by a copy to the card on stream 3");
  CHECK(RaceChecker::describe({.tick = 1, .work = "aten::linear", .argument = "weight"}) ==
        "its read by aten::linear (argument 'weight') on the default stream");
}
