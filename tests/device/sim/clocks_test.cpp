#include "device/sim/clocks.hpp"

#include <doctest/doctest.h>

using namespace lowtide::device::sim;

namespace {

// Round numbers, so that the expected times can be worked out by hand.
Card hand_card() {
  Card card;
  card.link_pinned_bytes_per_s = 100;
  card.link_pageable_bytes_per_s = 50;
  card.copy_latency_s = 0.5;
  card.launch_s = 0.25;
  card.alloc_s = 2;
  return card;
}

struct Fixture {
  Fixture() { clocks.set_card(hand_card()); }
  Clocks clocks;
};

constexpr StreamNumber kCopies = 1;

CopyTiming pinned(Direction direction, std::uint64_t bytes) {
  return {.direction = direction, .bytes = bytes, .pinned = true, .blocking = false};
}

}  // namespace

TEST_CASE_FIXTURE(Fixture, "a kernel starts when its stream is free and the host has submitted it") {
  clocks.launch();                   // host 0.25
  clocks.kernel(kDefaultStream, 1);  // 0.25 .. 1.25
  clocks.launch();                   // host 0.5
  clocks.kernel(kDefaultStream, 1);  // 1.25 .. 2.25
  CHECK(clocks.host() == 0.5);
  CHECK(clocks.latest() == 2.25);
  CHECK(clocks.compute_busy() == 2);
}

TEST_CASE_FIXTURE(Fixture, "a pageable copy is slower and holds the host until it ends") {
  clocks.copy(kDefaultStream,
              {.direction = Direction::to_card, .bytes = 100, .pinned = false, .blocking = true});
  CHECK(clocks.host() == 0.25 + 0.5 + 2);
  CHECK(clocks.link_busy() == 2.5);
}

TEST_CASE_FIXTURE(Fixture, "copies of one direction share the link, the other direction has its own") {
  clocks.copy(1, pinned(Direction::to_card, 100));  // 0.25 .. 1.75
  clocks.copy(2, pinned(Direction::to_card, 100));  // 1.75 .. 3.25
  CHECK(clocks.latest() == 3.25);
  clocks.copy(3, pinned(Direction::to_host, 100));  // 0.75 .. 2.25
  CHECK(clocks.latest() == 3.25);
  CHECK(clocks.host() == 0.75);
  CHECK(clocks.link_busy() == 4.5);
}

TEST_CASE_FIXTURE(Fixture, "what compute loses by waiting for a copy is stall time") {
  clocks.copy(kCopies, pinned(Direction::to_card, 100));  // 0.25 .. 1.75, host 0.25
  const TimeStamp copied = clocks.stamp(kCopies);
  clocks.stream_waits(kDefaultStream, copied);
  CHECK(clocks.stalled() == 1.5);
  clocks.launch();
  clocks.kernel(kDefaultStream, 1);  // 1.75 .. 2.75
  CHECK(clocks.latest() == 2.75);
  clocks.stream_waits(kDefaultStream, copied);  // long past
  CHECK(clocks.stalled() == 1.5);
}

TEST_CASE_FIXTURE(Fixture, "a copy stream that waits for compute does not count as stall") {
  clocks.kernel(kDefaultStream, 3);
  clocks.stream_waits(kCopies, clocks.stamp(kDefaultStream));
  CHECK(clocks.stalled() == 0);
  clocks.copy(kCopies, pinned(Direction::to_card, 100));  // 3 .. 4.5
  CHECK(clocks.latest() == 4.5);
}

TEST_CASE_FIXTURE(
    Fixture,
    "synchronising moves the host to the stream's time, asking the driver for memory costs host time") {
  clocks.kernel(kDefaultStream, 3);
  clocks.kernel(kCopies, 5);
  clocks.host_waits_for_stream(kDefaultStream);
  CHECK(clocks.host() == 3);
  clocks.host_waits_for_all();
  CHECK(clocks.host() == 5);
  clocks.driver_alloc();
  CHECK(clocks.host() == 7);
}

TEST_CASE_FIXTURE(Fixture, "polling ends, because a fruitless question costs time") {
  clocks.kernel(kDefaultStream, 1e-5);
  const TimeStamp done = clocks.stamp(kDefaultStream);
  int questions = 0;
  while (!clocks.passed(done) && questions < 1000) {
    clocks.poll();
    ++questions;
  }
  CHECK(questions > 1);
  CHECK(questions < 20);
}

TEST_CASE_FIXTURE(Fixture, "after a reset all clocks are zero and older stamps are long past") {
  clocks.copy(kCopies, pinned(Direction::to_card, 1000));
  const TimeStamp before = clocks.stamp(kCopies);
  clocks.reset();
  CHECK(clocks.latest() == 0);
  CHECK(clocks.link_busy() == 0);
  CHECK(clocks.passed(before));
  clocks.stream_waits(kDefaultStream, before);
  CHECK(clocks.latest() == 0);
}

TEST_CASE("the host pays for each of its waits and for memory that goes back to the driver") {
  Card card = hand_card();
  card.synchronize_s = 4;
  card.free_s = 8;
  Clocks clocks;
  clocks.set_card(card);
  clocks.kernel(kDefaultStream, 1);
  clocks.host_waits_for_stream(kDefaultStream);  // 1 + 4
  CHECK(clocks.host() == 5);
  clocks.host_waits_for_all();
  CHECK(clocks.host() == 9);
  clocks.host_waits(clocks.stamp(kCopies));
  CHECK(clocks.host() == 13);
  clocks.kernel(kDefaultStream, 2);  // 13 .. 15
  clocks.driver_free();              // after all work: 15 + 8
  CHECK(clocks.host() == 23);
}
