#include "plan/unit_packing.hpp"

#include <doctest/doctest.h>

#include <random>

using namespace lowtide;
using namespace lowtide::plan;

TEST_CASE("large storages stand alone, small neighbours in use order share a unit") {
  const std::vector<StorageUse> storages{{.bytes = 4 << 20, .element_size = 4, .uses = {5}},
                                         {.bytes = 4096, .element_size = 4, .uses = {5}},
                                         {.bytes = 4096, .element_size = 4, .uses = {1}},
                                         {.bytes = 100, .element_size = 4, .uses = {}},
                                         {.bytes = 0, .element_size = 4, .uses = {2}}};
  const Packing packing = pack_units(storages);
  REQUIRE(packing.units.size() == 2);
  CHECK(packing.units[0].bytes == 8192);  // first used at step 1
  CHECK(packing.units[0].uses == std::vector<StepId>{1, 5});
  CHECK(packing.units[1].bytes == 4 << 20);
}

TEST_CASE("state is a unit of its own however small") {
  const Packing packing =
      pack_units(std::vector<StorageUse>{{.bytes = 8, .element_size = 8, .uses = {0}, .state = true},
                                         {.bytes = 8, .element_size = 8, .uses = {0}}});
  REQUIRE(packing.units.size() == 2);
  CHECK(packing.units[0].state != packing.units[1].state);
}

TEST_CASE("no byte of padding travels and every storage is aligned to its elements") {
  std::mt19937 random(3);
  for (int round = 0; round < 100; ++round) {
    std::vector<StorageUse> storages;
    Bytes total = 0;
    for (int i = 0; i < 60; ++i) {
      const unsigned element = 1U << (random() % 5);
      const Bytes bytes = element * (1 + random() % 3000);
      storages.push_back(
          {.bytes = bytes, .element_size = element, .uses = {static_cast<StepId>(random() % 50)}});
      total += bytes;
    }
    const Packing packing = pack_units(storages);
    Bytes packed = 0;
    std::size_t pieces = 0;
    for (std::size_t u = 0; u < packing.units.size(); ++u) {
      packed += packing.units[u].bytes;
      for (const PackedStorage& piece : packing.content[u]) {
        ++pieces;
        CHECK(piece.offset % storages[piece.storage].element_size == 0);
        CHECK(piece.offset + storages[piece.storage].bytes <= packing.units[u].bytes);
      }
    }
    CHECK(packed == total);
    CHECK(pieces == storages.size());
  }
}
