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
