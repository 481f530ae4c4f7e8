// The home of the weights in host memory: one page-locked slab in use order, so that each unit is one
// contiguous copy.
#pragma once

#include <filesystem>
#include <span>

#include "device/device_extras.hpp"
#include "graph/weight_table.hpp"
#include "memory/host_slab.hpp"
#include "memory/pin_budget.hpp"
#include "plan/unit_packing.hpp"

namespace lowtide::residency {

/// Immutable after construction; safe to read from several threads.
class HostStore {
 public:
  /// Reads every storage of `packing` from the archive with pread, in unit order, into slabs that are
  /// page-locked as far as `pin_budget` reaches and the system allows, and `tables`, storages that only the
  /// host reads, into memory that is not locked. Throws ArchiveError when the file is shorter than it said or
  /// cannot be read.
  HostStore(const std::filesystem::path& archive, const graph::WeightTable& weights,
            const plan::Packing& packing, std::span<const std::uint32_t> tables, device::DeviceExtras& extras,
            Bytes pin_budget);

  /// The bytes of a unit: of the packing this was made of, or of one that cuts its storages into chunks.
  std::span<const std::byte> unit(const plan::Packing& packing, plan::UnitId id) const;
  /// Where a storage begins; null where it is neither packed nor a table.
  std::byte* storage(std::uint32_t id) const { return places_[id]; }
  /// Is this place in a unit page-locked?
  bool locked(const std::byte* place) const;

 private:
  std::vector<std::byte*> take_memory(const plan::Packing& packing, device::DeviceExtras& extras,
                                      Bytes pin_budget);

  std::vector<memory::HostSlab> slabs_;  // of units, in use order
  memory::HostSlab tables_;
  std::vector<std::byte*> places_;  // per storage
};

}  // namespace lowtide::residency
