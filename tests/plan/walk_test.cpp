// The order of a plan's steps: one job, waves over groups, chunks of split weights; and what waves need.
#include "plan/walk.hpp"

#include <doctest/doctest.h>

#include "plan/wave_groups.hpp"
#include "plan/weight_split.hpp"

using namespace lowtide;
using namespace lowtide::plan;

namespace {

/// Units of these sizes, the i-th used at step i.
Packing one_unit_a_step(const std::vector<Bytes>& sizes) {
  std::vector<StorageUse> storages;
  for (StepId i = 0; i < sizes.size(); ++i) storages.push_back({.bytes = sizes[i], .uses = {i}});
  return pack_units(storages);
}

JobMemory flat_memory(std::size_t steps, Bytes peak, Bytes after) {
  return {.steps = std::vector<StepBytes>(steps, {peak, after}), .inputs = 100};
}

}  // namespace

TEST_CASE("one job walks the steps in order") {
  const Walk walk = single_walk(3);
  CHECK(walk.positions.size() == 3);
  const Packing packing = one_unit_a_step({1 << 20, 1 << 20, 1 << 20});
  CHECK(units_on_walk(packing, walk)[2].uses == std::vector<StepId>{2});
}

TEST_CASE("in a wave a unit is used from the first pass of its group to the last, and by nobody else") {
  const Walk walk = wave_walk({{0, 2}, {2, 3}}, 5);
  // First, middle and last pass of two steps, then of one.
  CHECK(walk.positions.size() == 9);
  const std::vector<Unit> units = units_on_walk(one_unit_a_step({1 << 20, 1 << 20, 1 << 20}), walk);
  CHECK(units[0].uses == std::vector<StepId>{0, 2, 3, 4});
  CHECK(units[1].uses == std::vector<StepId>{1, 2, 3, 5});
  CHECK(units[2].uses == std::vector<StepId>{6, 7, 8});
}

TEST_CASE("two jobs have no middle pass") {
  CHECK(wave_walk({{0, 2}, {2, 3}}, 2).positions.size() == 6);
}

TEST_CASE("a wave takes the time of all its jobs") {
  const std::vector<StepCost> steps{{.host_s = 1, .kernel_s = 10}, {.host_s = 2, .kernel_s = 20}};
  double host = 0, kernel = 0, upload = 0;
  WaveTransfers transfers{.restore_s = {3, 4}, .park_s = {5, 6}};
  for (const StepCost& cost : costs_on_walk(wave_walk({{0, 1}, {1, 2}}, 7), steps, transfers)) {
    host += cost.host_s;
    kernel += cost.kernel_s;
    upload += cost.upload_s;
  }
  CHECK(host == 7 * 3);
  CHECK(kernel == 7 * (30 + 11));
  CHECK(upload == 7 * 7);
}

TEST_CASE("jobs of a wave that wait hold what is alive between groups, or nothing where it is spilled") {
  const JobMemory memory = flat_memory(4, 1000, 300);
  const Walk walk = wave_walk({{0, 2}, {2, 4}}, 5);
  CHECK(wave_bytes(memory, walk, false) == 4 * 300 + 1000);
  CHECK(wave_bytes(memory, walk, true) == 1000);
  CHECK(wave_bytes(memory, single_walk(4), false) == 1000);
}

TEST_CASE("the groups of every candidate cover all steps once, in order") {
  const Packing packing = one_unit_a_step(std::vector<Bytes>(24, 1 << 20));
  JobMemory memory = flat_memory(24, 5000, 900);
  for (std::size_t i = 3; i < 24; i += 4) memory.steps[i].after = 100;  // cheap cuts
  const auto groupings = candidate_groups(packing, memory);
  CHECK(groupings.size() > 3);
  bool only_cheap = false;
  for (const auto& groups : groupings) {
    StepId next = 0;
    bool cheap = groups.size() > 1;
    for (const StepGroup& group : groups) {
      CHECK(group.begin == next);
      CHECK(group.end > group.begin);
      next = group.end;
      cheap = cheap && (group.end == 24 || memory.steps[group.end - 1].after == 100);
    }
    CHECK(next == 24);
    only_cheap = only_cheap || cheap;
  }
  CHECK(only_cheap);
}

TEST_CASE("a split weight travels whole, row by row and without overlap") {
  const Packing packing = one_unit_a_step({1 << 20, 7 * 1000 * 1000, 1 << 20});
  const std::vector<SplittableWeight> weights{{.storage = 1, .rows = 1000, .row_bytes = 7000}};
  for (const Bytes largest : {Bytes{7000000}, Bytes{3000000}, Bytes{999999}, Bytes{7000}, Bytes{1}}) {
    CAPTURE(largest);
    const SplitPacking split = split_weights(packing, weights, 3, largest);
    Bytes next = 0;
    for (std::size_t u = 0; u < split.packing.units.size(); ++u) {
      const PackedStorage& piece = split.packing.content[u].front();
      if (piece.storage != 1) continue;
      CHECK(piece.begin == next);
      CHECK(split.packing.units[u].bytes <= std::max<Bytes>(largest, 7000));
      CHECK(split.packing.units[u].bytes > 0);
      next += split.packing.units[u].bytes;
    }
    CHECK(next == 7000000);
    CHECK(split.split_weights == (largest < 7000000 ? 1 : 0));
    if (split.split_weights == 0) continue;
    const Walk walk = single_walk(3, split.chunks_of_step);
    CHECK(walk.positions.size() == 2 + split.chunks_of_step[1]);
    const std::vector<Unit> units = units_on_walk(split.packing, walk);
    for (std::size_t u = 1; u + 1 < units.size(); ++u) CHECK(units[u].uses == std::vector<StepId>{StepId(u)});
  }
}
