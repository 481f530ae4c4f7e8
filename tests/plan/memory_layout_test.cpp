#include "plan/memory_layout.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

using lowtide::Bytes;
using lowtide::plan::lay_out;
using lowtide::plan::Lifetime;
using lowtide::plan::live_peak;
using lowtide::plan::MemoryLayout;

namespace {

constexpr Bytes kGranule = 512;

/// Blocks that live at the same time and share a byte, or reach beyond the region.
std::size_t overlaps(const std::vector<Lifetime>& blocks, const MemoryLayout& layout) {
  std::size_t count = 0;
  for (std::size_t a = 0; a < blocks.size(); ++a) {
    if (blocks[a].begin >= blocks[a].end) continue;
    if (layout.offsets[a] + blocks[a].bytes > layout.bytes) ++count;
    for (std::size_t b = 0; b < a; ++b) {
      if (blocks[b].begin >= blocks[b].end) continue;
      const bool together = blocks[a].begin < blocks[b].end && blocks[b].begin < blocks[a].end;
      const bool apart = layout.offsets[a] + blocks[a].bytes <= layout.offsets[b] ||
                         layout.offsets[b] + blocks[b].bytes <= layout.offsets[a];
      if (together && !apart && blocks[a].bytes > 0 && blocks[b].bytes > 0) ++count;
    }
  }
  return count;
}

/// Most steps make one block that the next step or two read; some blocks live long.
std::vector<Lifetime> random_job(std::uint64_t seed, std::uint32_t steps, std::uint64_t one_is_long_of = 10) {
  std::mt19937_64 random(seed);
  std::vector<Lifetime> blocks;
  for (std::uint32_t step = 0; step < steps; ++step) {
    for (std::uint64_t i = random() % 3; i-- > 0;) {
      const auto reach =
          static_cast<std::uint32_t>(random() % one_is_long_of == 0 ? random() % steps : 1 + random() % 3);
      blocks.push_back({(random() % 64) * kGranule, step, std::min(step + reach, steps)});
    }
  }
  return blocks;
}

}  // namespace

TEST_CASE("blocks that never live together share their bytes") {
  const std::vector<Lifetime> blocks{{1024, 0, 2}, {512, 1, 3}, {1024, 2, 4}};
  const MemoryLayout layout = lay_out(blocks);
  CHECK(layout.bytes == 1536);
  CHECK(layout.offsets[0] == layout.offsets[2]);
  CHECK(overlaps(blocks, layout) == 0);
}

TEST_CASE("a block is alive up to its end and not longer") {
  const std::vector<Lifetime> meet{{512, 0, 2}, {512, 2, 4}};
  CHECK(lay_out(meet).bytes == 512);
  const std::vector<Lifetime> overlap{{512, 0, 3}, {512, 2, 4}};
  CHECK(lay_out(overlap).bytes == 1024);
}

TEST_CASE("blocks without bytes or without life take nothing") {
  const std::vector<Lifetime> blocks{{0, 0, 9}, {512, 3, 3}, {512, 4, 5}};
  CHECK(lay_out(blocks).bytes == 512);
  CHECK(live_peak(blocks) == 512);
  CHECK(lay_out({}).bytes == 0);
  CHECK(live_peak({}) == 0);
}

TEST_CASE("most small jobs take no more than what is alive") {
  std::size_t missed = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::vector<Lifetime> blocks = random_job(seed, 12);
    const MemoryLayout layout = lay_out(blocks);
    REQUIRE(overlaps(blocks, layout) == 0);
    missed += layout.bytes > live_peak(blocks) ? 1 : 0;
  }
  CHECK(missed < 10);
}

TEST_CASE("random jobs: nothing overlaps, and the region is never below what is alive") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<Lifetime> blocks = random_job(seed, 150);
    const MemoryLayout layout = lay_out(blocks);
    CAPTURE(seed);
    CHECK(overlaps(blocks, layout) == 0);
    CHECK(layout.bytes >= live_peak(blocks));
  }
}

TEST_CASE("twenty thousand steps with long lives among them are laid out") {
  const std::vector<Lifetime> blocks = random_job(7, 20000, 1000);
  const MemoryLayout layout = lay_out(blocks);
  CHECK(layout.bytes >= live_peak(blocks));
}

TEST_CASE("a hundred thousand blocks that all live together are laid out, one behind the other") {
  const std::vector<Lifetime> blocks(100'000, Lifetime{kGranule, 0, 100'000});
  const MemoryLayout layout = lay_out(blocks);
  CHECK(layout.bytes == blocks.size() * kGranule);
  std::vector<Bytes> offsets = layout.offsets;
  std::sort(offsets.begin(), offsets.end());
  CHECK(std::adjacent_find(offsets.begin(), offsets.end()) == offsets.end());
}
