// From storages of the archive to units that move: one large storage is a unit of its own, small neighbours
// in use order share one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/residency_problem.hpp"

namespace lowtide::plan {

/// What packing needs to know about one storage.
struct StorageUse {
  Bytes bytes = 0;
  unsigned element_size = 1;  // largest element size of its views: its offset must be a multiple
  std::vector<StepId> uses;   // ascending; empty: never read, never moved
  bool state = false;         // written by the program
};

/// Where a storage, or a chunk of one, lies in its unit.
struct PackedStorage {
  std::uint32_t storage = 0;
  Bytes offset = 0;         // in the unit
  Bytes begin = 0;          // of the chunk in the storage
  std::uint32_t chunk = 0;  // which of so many chunks that a storage was cut into
  std::uint32_t chunks = 1;
};

struct Packing {
  std::vector<Unit> units;                          // in order of first use
  std::vector<std::vector<PackedStorage>> content;  // per unit
};

/// Storages below this size are packed with their neighbours: a copy of their own would cost more latency
/// than transfer.
inline constexpr Bytes kSmallStorage = 256 * 1024;
/// A unit of packed storages ends when it has grown to this.
inline constexpr Bytes kPackedUnit = 1024 * 1024;

/// No padding travels: inside a unit, storages whose size is a multiple of 64 come first, then by falling
/// element size, so that every offset is aligned to the element size without gaps.
Packing pack_units(std::span<const StorageUse> storages);

}  // namespace lowtide::plan
