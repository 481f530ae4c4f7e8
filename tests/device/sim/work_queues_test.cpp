#include "device/sim/work_queues.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <string>

using lowtide::device::sim::WorkQueues;

namespace {

struct Fixture {
  void push(int stream, char name) {
    queues.push(stream, [this, name] { log += name; });
  }
  WorkQueues queues;
  std::string log;
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "work waits until something orders it") {
  push(1, 'a');
  push(2, 'b');
  CHECK(log.empty());
  queues.run(2);
  CHECK(log == "b");
  queues.run(1);
  CHECK(log == "ba");
}

TEST_CASE_FIXTURE(Fixture,
                  "an event carries out what came before it, in order, and nothing that came after") {
  push(1, 'a');
  push(1, 'b');
  const auto event = queues.accepted(1);
  push(1, 'c');
  CHECK_FALSE(queues.done(1, event));
  queues.run_until(1, event);
  CHECK(log == "ab");
  CHECK(queues.done(1, event));
  queues.run_until(1, event);
  CHECK(log == "ab");
  queues.run_all();
  CHECK(log == "abc");
}

TEST_CASE_FIXTURE(Fixture, "streams without work are done") {
  CHECK(queues.accepted(5) == 0);
  CHECK(queues.done(5, 0));
  queues.run(5);
  queues.run_all();
  CHECK(log.empty());
}

TEST_CASE("work keeps what it owns alive until it is done, then lets go") {
  WorkQueues queues;
  auto owned = std::make_shared<int>(7);
  queues.push(1, [owned] {});
  CHECK(owned.use_count() == 2);
  queues.run(1);
  CHECK(owned.use_count() == 1);
}

TEST_CASE_FIXTURE(Fixture, "work that is carried out by chance keeps the order of its stream") {
  for (const char name : {'a', 'b', 'c', 'd', 'e', 'f'}) push(1, name);
  std::uint64_t random = 0x123456789abcdef;
  for (int round = 0; round < 50; ++round) {
    queues.run_some(random);
    random = random * 6364136223846793005 + 1;
  }
  CHECK(log == "abcdef");
}

TEST_CASE_FIXTURE(Fixture, "chance may leave all work waiting") {
  push(1, 'a');
  queues.run_some(0);
  CHECK(log.empty());
}
