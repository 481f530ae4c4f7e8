// The home of the weights in host memory: one page-locked slab in use order, so that each unit is one
// contiguous copy.
#pragma once

#include <filesystem>
#include <span>

#include "device/device_extras.hpp"
#include "graph/weight_table.hpp"
#include "memory/host_slab.hpp"
#include "plan/unit_packing.hpp"

namespace lowtide::residency {

/// Immutable after construction; safe to read from several threads.
class HostStore {
 public:
  /// Reads every storage of `packing` from the archive with pread, in unit order. Throws ArchiveError when
  /// the file is shorter than it said or cannot be read.
  HostStore(const std::filesystem::path& archive, const graph::WeightTable& weights,
            const plan::Packing& packing, device::DeviceExtras& extras);

  /// The bytes of one unit.
  std::span<const std::byte> unit(plan::UnitId id) const { return {slab_.data() + offsets_[id], sizes_[id]}; }
  bool pinned() const { return slab_.locked(); }
  Bytes bytes() const { return slab_.bytes(); }

 private:
  memory::HostSlab slab_;
  std::vector<Bytes> offsets_;
  std::vector<Bytes> sizes_;
};

}  // namespace lowtide::residency
