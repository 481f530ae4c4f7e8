#include "device/sim/sim_memory.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "lowtide/error.hpp"

using lowtide::OutOfBudget;
using lowtide::device::sim::HostMemory;
using lowtide::device::sim::MemoryLimits;
using lowtide::device::sim::SimMemory;

namespace {

int host_blocks = 0;
unsigned char last_byte_at_free = 0;

void* host_allocate(std::size_t bytes) {
  ++host_blocks;
  return std::aligned_alloc(64, (bytes + 63) / 64 * 64);
}

void host_free(void* data) {
  --host_blocks;
  last_byte_at_free = *static_cast<unsigned char*>(data);
  std::free(data);
}

struct Fixture {
  explicit Fixture(const MemoryLimits& limits = {.context_bytes = 1024, .cap_bytes = 4096}) {
    memory.reopen(limits);
  }
  SimMemory memory{HostMemory{&host_allocate, &host_free}};
};

}  // namespace

TEST_CASE("a block takes a multiple of 512 bytes and gives them back") {
  Fixture f;
  CHECK(f.memory.counters().used == 1024);
  void* one = f.memory.allocate(1).data;
  CHECK(f.memory.counters().used == 1024 + 512);
  void* two = f.memory.allocate(513).data;
  CHECK(f.memory.counters().used == 1024 + 512 + 1024);
  CHECK(f.memory.free(one));
  CHECK(f.memory.free(two));
  CHECK(f.memory.counters().used == 1024);
  CHECK(f.memory.counters().peak == 2560);
  CHECK(host_blocks == 0);
}

TEST_CASE("zero bytes take nothing") {
  Fixture f;
  CHECK(f.memory.allocate(0).data == nullptr);
  CHECK(f.memory.counters().blocks == 0);
  CHECK(f.memory.counters().used == 1024);
}

TEST_CASE("the cap can be filled to the byte and refuses one granule more without taking anything") {
  Fixture f;
  void* full = f.memory.allocate(3072).data;
  CHECK(f.memory.counters().used == 4096);
  std::string message;
  try {
    f.memory.allocate(1);
  } catch (const OutOfBudget& error) {
    message = error.what();
    CHECK(error.want() == 512);
    CHECK(error.cap() == 4096);
  }
  CHECK(message.find("want 512") != std::string::npos);
  CHECK(message.find("used 4096") != std::string::npos);
  CHECK(message.find("cap 4096") != std::string::npos);
  CHECK(f.memory.counters().used == 4096);
  CHECK(f.memory.counters().blocks == 1);
  CHECK(host_blocks == 1);
  f.memory.free(full);
}

TEST_CASE("a size near 2^64 does not overflow into a small one") {
  Fixture f;
  CHECK_THROWS_AS(f.memory.allocate(SIZE_MAX), OutOfBudget);
  CHECK(f.memory.counters().used == 1024);
}

TEST_CASE("reserved is the high-water mark of used since the last trim") {
  Fixture f;
  const auto first = f.memory.allocate(1024);
  CHECK(first.asked_driver);
  CHECK(f.memory.counters().reserved == 2048);
  f.memory.free(first.data);
  CHECK(f.memory.counters().reserved == 2048);
  const auto again = f.memory.allocate(512);
  CHECK_FALSE(again.asked_driver);
  CHECK(f.memory.counters().driver_allocs == 1);
  f.memory.trim();
  CHECK(f.memory.counters().reserved == 1536);
  const auto more = f.memory.allocate(1);
  CHECK(more.asked_driver);
  CHECK(f.memory.counters().driver_allocs == 2);
  CHECK(f.memory.counters().reserved_peak == 2048);
  f.memory.free(again.data);
  f.memory.free(more.data);
}

TEST_CASE("reserved never exceeds a lowered cap, and a cap below used only stops further allocations") {
  Fixture f;
  void* kept = f.memory.allocate(512).data;
  f.memory.free(f.memory.allocate(2048).data);
  CHECK(f.memory.counters().reserved == 3584);
  f.memory.set_cap(2048);
  CHECK(f.memory.counters().reserved == 2048);
  f.memory.set_cap(1024);
  CHECK(f.memory.counters().reserved == 1536);
  CHECK_THROWS_AS(f.memory.allocate(1), OutOfBudget);
  f.memory.free(kept);
}

TEST_CASE("a window's peak starts at the present level") {
  Fixture f;
  f.memory.free(f.memory.allocate(2048).data);
  f.memory.start_window();
  CHECK(f.memory.counters().window_peak == 1024);
  f.memory.free(f.memory.allocate(512).data);
  CHECK(f.memory.counters().window_peak == 1536);
  CHECK(f.memory.counters().peak == 3072);
  f.memory.reset_peaks();
  CHECK(f.memory.counters().peak == 1024);
  CHECK(f.memory.counters().driver_allocs == 0);
}

TEST_CASE("fresh and freed memory are poisoned, unless poison is off") {
  Fixture f;
  auto* data = static_cast<unsigned char*>(f.memory.allocate(100).data);
  CHECK(data[0] == 0xCD);
  CHECK(data[99] == 0xCD);
  f.memory.free(data);
  CHECK(last_byte_at_free == 0xDD);

  Fixture off({.cap_bytes = 4096, .poison = false});
  auto* plain = static_cast<unsigned char*>(off.memory.allocate(100).data);
  plain[0] = 7;
  off.memory.free(plain);
  CHECK(last_byte_at_free == 7);
}

TEST_CASE("a single allocation can be limited") {
  Fixture f({.cap_bytes = 4096, .max_allocation_bytes = 600});
  f.memory.free(f.memory.allocate(600).data);
  CHECK_THROWS_AS(f.memory.allocate(601), OutOfBudget);
}

TEST_CASE("memory of others is not freed, and limits do not change under live blocks") {
  Fixture f;
  int foreign = 0;
  CHECK_FALSE(f.memory.free(&foreign));
  void* live = f.memory.allocate(1).data;
  CHECK(f.memory.owns(live));
  CHECK_FALSE(f.memory.reopen({}));
  f.memory.free(live);
  CHECK_FALSE(f.memory.owns(live));
  CHECK(f.memory.reopen({}));
}

TEST_CASE("a block that waiting work still needs counts as freed, and its content stays until it is let go") {
  Fixture f;
  auto* data = static_cast<unsigned char*>(f.memory.allocate(100).data);
  data[0] = 7;
  REQUIRE(f.memory.hold(data));
  REQUIRE(f.memory.hold(data));
  const auto freed = f.memory.free(data);
  REQUIRE(freed.has_value());
  CHECK(freed->bytes == 100);
  CHECK(f.memory.counters().used == 1024);
  CHECK_FALSE(f.memory.owns(data));
  CHECK_FALSE(f.memory.hold(data));
  CHECK_FALSE(f.memory.free(data));
  f.memory.let_go(data);
  CHECK(data[0] == 7);
  f.memory.let_go(data);
  CHECK(host_blocks == 0);
  CHECK(last_byte_at_free == SimMemory::kFreedByte);
}

TEST_CASE("a block remembers its stream and those that were recorded for it") {
  Fixture f;
  void* data = f.memory.allocate(100, 3).data;
  CHECK_FALSE(f.memory.any_recorded());
  f.memory.record_stream(data, 1);
  f.memory.record_stream(data, 5);
  CHECK(f.memory.any_recorded());
  const auto block = f.memory.find(data);
  REQUIRE(block.has_value());
  CHECK(block->stream == 3);
  CHECK(block->recorded == (1U << 1 | 1U << 5));
  f.memory.free(data);
}

TEST_CASE("what another program holds of the card is not there to be allocated") {
  Fixture f({.total_bytes = 4096, .cap_bytes = 3072});
  CHECK(f.memory.free_bytes() == 3072);
  f.memory.set_other_program(2048);
  CHECK(f.memory.free_bytes() == 2048);
  CHECK_THROWS_AS(f.memory.allocate(2049), OutOfBudget);
  f.memory.free(f.memory.allocate(2048).data);
  f.memory.set_other_program(9999);
  CHECK(f.memory.free_bytes() == 0);
}

// --- the region for planned places ---

namespace {

using lowtide::ArenaGrowth;
using lowtide::device::Placement;

/// Plans what the test says.
class Planned : public Placement {
 public:
  Answer next{Kind::unplanned, 0};
  int answers = 0;
  int returns = 0;

  Answer place(std::uint64_t) noexcept override { return next; }
  void answered(const void*, std::uint64_t, const Answer&) noexcept override { ++answers; }
  void given_back(const void*) noexcept override { ++returns; }
};

}  // namespace

TEST_CASE("a region is used as a whole, and what is taken of it costs nothing more") {
  Fixture f;
  Planned planned;
  CHECK(f.memory.open_region({.bytes = 1500, .placement = &planned}));
  CHECK(f.memory.counters().used == 1024 + 1536);
  planned.next = {Placement::Kind::planned, 512};
  auto* data = static_cast<unsigned char*>(f.memory.allocate(100).data);
  CHECK(data[0] == SimMemory::kFreshByte);
  CHECK(f.memory.counters().used == 1024 + 1536);
  CHECK(f.memory.counters().live_peak == 1024 + 512);
  CHECK(f.memory.counters().blocks == 1);
  CHECK(f.memory.find(data)->bytes == 100);
  CHECK(f.memory.free(data));
  CHECK(data[99] == SimMemory::kFreedByte);
  CHECK(planned.returns == 1);
  f.memory.close_region();
  CHECK(f.memory.counters().used == 1024);
  CHECK(f.memory.counters().peak == 1024 + 1536);
}

TEST_CASE("a region beyond the cap is refused and leaves nothing behind") {
  Fixture f;
  Planned planned;
  CHECK_THROWS_AS(f.memory.open_region({.bytes = 4096, .placement = &planned}), OutOfBudget);
  CHECK(f.memory.counters().used == 1024);
  void* data = f.memory.allocate(1).data;
  CHECK(planned.answers == 0);
  f.memory.free(data);
}

TEST_CASE("what has no planned place is taken beside the region, under the same cap") {
  Fixture f;
  Planned planned;
  f.memory.open_region({.bytes = 2048, .placement = &planned});
  void* beside = f.memory.allocate(1024).data;
  CHECK(planned.answers == 1);
  CHECK(f.memory.counters().used == 4096);
  CHECK_THROWS_AS(f.memory.allocate(1), OutOfBudget);
  f.memory.free(beside);
  CHECK(planned.returns == 1);
  f.memory.close_region();
  CHECK(f.memory.counters().used == 1024);
}

TEST_CASE("a place whose content waits for queued work is not free before that is done") {
  Fixture f;
  Planned planned;
  f.memory.open_region({.bytes = 1024, .placement = &planned});
  planned.next = {Placement::Kind::planned, 0};
  void* data = f.memory.allocate(512).data;
  *static_cast<unsigned char*>(data) = 7;
  REQUIRE(f.memory.hold(data));
  CHECK(f.memory.free(data));
  CHECK(planned.returns == 0);
  CHECK(*static_cast<unsigned char*>(data) == 7);
  planned.next = {Placement::Kind::occupied, 0};
  CHECK(f.memory.allocate(512, 0, SimMemory::Occupied::report).occupied);
  f.memory.close_region();
  CHECK(f.memory.counters().used == 1024 + 1024);  // the region waits, too
  f.memory.let_go(data);
  CHECK(f.memory.counters().used == 1024);
}

TEST_CASE("a region goes with the last allocation in it") {
  Fixture f;
  Planned planned;
  f.memory.open_region({.bytes = 1024, .placement = &planned});
  planned.next = {Placement::Kind::planned, 0};
  void* data = f.memory.allocate(512).data;
  f.memory.close_region();
  CHECK(f.memory.counters().used == 1024 + 1024);
  CHECK_FALSE(f.memory.reopen({}));
  f.memory.free(data);
  CHECK(f.memory.counters().used == 1024);
  CHECK(planned.returns == 0);  // nobody listens any more
}

TEST_CASE("the overflow region grows as the strategy says, and never beyond the cap") {
  const auto reserved_after = [](ArenaGrowth growth, std::uint64_t cap) {
    Fixture f({.context_bytes = 1024, .cap_bytes = cap});
    Planned planned;
    f.memory.open_region({.bytes = 0, .growth = growth, .placement = &planned});
    void* one = f.memory.allocate(1024).data;
    void* two = f.memory.allocate(1536).data;
    const auto counters = f.memory.counters();
    f.memory.free(one);
    f.memory.free(two);
    f.memory.close_region();
    return std::pair(counters.reserved, counters.driver_allocs);
  };
  CHECK(reserved_after(ArenaGrowth::same_as_requested, 1 << 20) ==
        std::pair<std::uint64_t, std::uint64_t>(1024 + 2560, 2));
  CHECK(reserved_after(ArenaGrowth::next_power_of_two, 1 << 20) ==
        std::pair<std::uint64_t, std::uint64_t>(1024 + 4096, 2));
  CHECK(reserved_after(ArenaGrowth::next_power_of_two, 4608) ==
        std::pair<std::uint64_t, std::uint64_t>(4608, 2));
}

TEST_CASE("a region takes what earlier jobs left reserved: the level is the largest job's, in any order") {
  for (const bool large_first : {true, false}) {
    Fixture f({.context_bytes = 0, .cap_bytes = 1 << 20});
    Planned planned;
    for (const std::uint64_t bytes : {large_first ? 8192 : 2048, large_first ? 2048 : 8192, 4096}) {
      f.memory.open_region({.bytes = 0, .placement = &planned});  // recorded one by one
      planned.next = {Placement::Kind::unplanned, 0};
      f.memory.free(f.memory.allocate(bytes).data);
      f.memory.close_region();
      f.memory.open_region({.bytes = bytes, .placement = &planned});
      f.memory.close_region();
    }
    CHECK(f.memory.counters().reserved_peak == 8192);
  }
}

TEST_CASE(
    "memory that may live long and a job's memory are reserved apart, and idle pages move between them") {
  Fixture f({.context_bytes = 0, .cap_bytes = 8192});
  Planned planned;
  f.memory.open_region({.bytes = 0, .placement = &planned});
  f.memory.free(f.memory.allocate(6144).data);
  planned.next = {Placement::Kind::foreign, 0};
  void* slab = f.memory.allocate(1024).data;
  CHECK(f.memory.counters().reserved == 6144 + 1024);
  void* more = f.memory.allocate(4096).data;  // the idle 6144 are in its way
  CHECK(f.memory.counters().reserved == 1024 + 4096);
  CHECK(f.memory.trim(4608) == false);
  f.memory.free(more);
  CHECK(f.memory.trim(4608));
  CHECK(f.memory.counters().reserved == 4608);
  f.memory.free(slab);
  f.memory.close_region();
  CHECK(f.memory.trim());
  CHECK(f.memory.counters().reserved == 0);
  CHECK(host_blocks == 0);
}
