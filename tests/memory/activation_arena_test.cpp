#include "memory/activation_arena.hpp"

#include <doctest/doctest.h>

#include <array>

using lowtide::Bytes;
using lowtide::device::Placement;
using lowtide::memory::ActivationArena;
using lowtide::memory::ArenaVisit;
using lowtide::memory::MemoryPattern;
using lowtide::memory::RequestTrace;

namespace {

/// Plays the device: memory in the region is at its offset, other memory at made up addresses.
class Device {
 public:
  explicit Device(ActivationArena& arena) : arena_(arena) {}

  Placement::Answer ask(Bytes bytes) {
    const Placement::Answer answer = arena_.place(bytes);
    if (answer.kind == Placement::Kind::occupied || answer.kind == Placement::Kind::foreign) return answer;
    last_ = answer.kind == Placement::Kind::planned ? &region_[answer.offset] : &beside_[used_++];
    arena_.answered(last_, bytes, answer);
    return answer;
  }
  const void* last() const { return last_; }

 private:
  ActivationArena& arena_;
  std::array<char, 8192> region_{};
  std::array<char, 64> beside_{};
  std::size_t used_ = 0;
  const void* last_ = nullptr;
};

/// Two steps: the first makes 1024 bytes, the second takes 512 for itself and makes 2048; after it the first
/// result goes.
RequestTrace record_two_steps() {
  ActivationArena arena;
  Device device(arena);
  arena.start_recording();
  const void* first = nullptr;
  {
    const ArenaVisit visit(&arena, 10);
    device.ask(1024);
    first = device.last();
  }
  {
    const ArenaVisit visit(&arena, 20);
    device.ask(512);
    const void* inside = device.last();
    device.ask(2048);
    arena.given_back(inside);
    arena.given_back(first);
  }
  return arena.take_trace();
}

std::shared_ptr<const MemoryPattern> pattern_of_two_steps() {
  const std::array<Bytes, 3> offsets{0, 1024, 1536};
  return std::make_shared<const MemoryPattern>(record_two_steps(), offsets, 3584, 3584);
}

}  // namespace

TEST_CASE("a trace has each request with its step and its life, counted in requests") {
  const RequestTrace trace = record_two_steps();
  REQUIRE(trace.requests.size() == 3);
  CHECK(trace.requests[0].bytes == 1024);
  CHECK(trace.requests[0].until == 3);
  CHECK(trace.requests[1].until == 3);
  CHECK(trace.requests[2].until == 3);  // still alive: to the end
  REQUIRE(trace.visits.size() == 2);
  CHECK(trace.visits[0].id == 10);
  CHECK(trace.visits[1].id == 20);
  CHECK(trace.visits[1].first == 1);
}

TEST_CASE("each request of a known run gets its planned place") {
  ActivationArena arena;
  Device device(arena);
  arena.start_placing(pattern_of_two_steps());
  {
    const ArenaVisit visit(&arena, 10);
    CHECK(device.ask(1024).offset == 0);
  }
  const ArenaVisit visit(&arena, 20);
  const auto inside = device.ask(512);
  CHECK(inside.kind == Placement::Kind::planned);
  CHECK(inside.offset == 1024);
  CHECK(device.ask(2048).offset == 1536);
  CHECK(arena.hits() == 3);
  CHECK(arena.misses() == 0);
  CHECK(arena.first_miss().bytes == 0);
}

TEST_CASE("two threads of one operator may ask in either order") {
  ActivationArena arena;
  Device device(arena);
  arena.start_placing(pattern_of_two_steps());
  const ArenaVisit visit(&arena, 20);
  CHECK(device.ask(2048).offset == 1536);
  CHECK(device.ask(512).offset == 1024);
  CHECK(arena.misses() == 0);
}

TEST_CASE("another size, one request too many and an unknown step are counted and come from elsewhere") {
  ActivationArena arena;
  Device device(arena);
  arena.start_placing(pattern_of_two_steps());
  {
    const ArenaVisit visit(&arena, 10);
    CHECK(device.ask(1536).kind == Placement::Kind::unplanned);
    CHECK(device.ask(1024).kind == Placement::Kind::planned);
    CHECK(device.ask(1024).kind == Placement::Kind::unplanned);
  }
  {
    const ArenaVisit visit(&arena, 99);
    CHECK(device.ask(512).kind == Placement::Kind::unplanned);
  }
  CHECK(arena.hits() == 1);
  CHECK(arena.misses() == 3);
  CHECK(arena.first_miss().visit == 10);
  CHECK(arena.first_miss().bytes == 1536);
}

TEST_CASE("a place that something else still holds is never handed out") {
  ActivationArena arena;
  Device device(arena);
  const std::array<Bytes, 3> overlapping{0, 512, 512};
  arena.start_placing(std::make_shared<const MemoryPattern>(record_two_steps(), overlapping, 2560, 2560));
  {
    const ArenaVisit visit(&arena, 10);
    device.ask(1024);
  }
  const void* first = device.last();
  const ArenaVisit visit(&arena, 20);
  CHECK(device.ask(512).kind == Placement::Kind::occupied);
  CHECK(device.ask(2048).kind == Placement::Kind::occupied);
  arena.given_back(first);
  CHECK(device.ask(2048).kind == Placement::Kind::planned);
  CHECK(device.ask(512).kind == Placement::Kind::occupied);  // the place before it overlaps
}

TEST_CASE("a step that is repeated asks for the same places again") {
  ActivationArena arena;
  Device device(arena);
  arena.start_placing(pattern_of_two_steps());
  {
    const ArenaVisit visit(&arena, 10);
    device.ask(1024);
    arena.given_back(device.last());
  }
  const ArenaVisit again(&arena, 10);
  CHECK(device.ask(1024).kind == Placement::Kind::planned);
}

TEST_CASE("what is asked for outside of the steps is none of the arena's") {
  ActivationArena arena;
  Device device(arena);
  arena.start_recording();
  CHECK(device.ask(512).kind == Placement::Kind::foreign);
  { const ArenaVisit visit(&arena, 1); }
  CHECK(device.ask(512).kind == Placement::Kind::foreign);
  arena.given_back(&arena);  // nobody has heard of it
  CHECK(arena.misses() == 0);
  CHECK(arena.take_trace().visits.empty());
}

TEST_CASE("a run that is only counted remembers nothing") {
  ActivationArena arena;
  Device device(arena);
  arena.start_counting();
  {
    const ArenaVisit visit(&arena, 1);
    CHECK(device.ask(512).kind == Placement::Kind::unplanned);
  }
  CHECK(arena.misses() == 1);
  CHECK(arena.take_trace().requests.empty());
}
