// The home of the weights in host memory: page-locked slabs in use order, each unit in one piece, so that it
// is one contiguous copy. With a cap on memory, some stay in the archive (disk_feed).
#pragma once

#include <span>

#include "device/device_extras.hpp"
#include "graph/weight_table.hpp"
#include "memory/checked_file.hpp"
#include "memory/host_slab.hpp"
#include "plan/unit_packing.hpp"
#include "residency/weight_pool.hpp"

namespace lowtide::residency {

struct HostStoreOptions {
  Bytes pin_budget = 0;        // how much may be page-locked
  WeightPool* pool = nullptr;  // equal weights of other stores are shared through it; null: with nobody
  /// Per storage: stays in the file. Empty: none does. Whole units stay or none of their storages.
  std::vector<bool> on_disk;
};

/// Memory of a storage or unit in a store: units of a page and more begin at page boundaries.
Bytes stored_bytes(Bytes unit_bytes);

/// Immutable after construction; safe to read from several threads.
class HostStore {
 public:
  /// Reads every storage of `packing` that does not stay in the file from the archive with pread, in unit
  /// order, into slabs that are page-locked as far as the budget reaches and the system allows (none without
  /// `extras`), and `tables`, storages that only the host reads, into memory that is not locked. Throws
  /// ArchiveError when the file is not the one that was checked or cannot be read.
  HostStore(const memory::FileIdentity& archive, const graph::WeightTable& weights,
            const plan::Packing& packing, std::span<const std::uint32_t> tables, device::DeviceExtras* extras,
            const HostStoreOptions& options);

  /// The bytes of a unit: of the packing this was made of, or of one that cuts its storages into chunks.
  std::span<const std::byte> unit(const plan::Packing& packing, plan::UnitId id) const;
  /// Where a storage begins; null where it is neither packed nor a table, or stays in the file.
  std::byte* storage(std::uint32_t id) const { return places_[id]; }
  /// Does the unit lie here, not in the file?
  bool holds(const plan::Packing& packing, plan::UnitId id) const {
    return on_disk_.empty() || !on_disk_[packing.content[id].front().storage];
  }
  /// Is this place in a unit page-locked?
  bool locked(const std::byte* place) const;
  /// Of units and tables, what other stores held already.
  Bytes shared_bytes() const { return shared_bytes_; }
  /// Bytes of weights that were read from the archive.
  Bytes bytes_read() const { return bytes_read_; }

 private:
  class Loader;

  std::vector<std::shared_ptr<const memory::HostSlab>> slabs_;  // of units in use order, then of tables
  std::vector<std::byte*> places_;                              // per storage
  std::vector<bool> on_disk_;                                   // per storage, or empty
  Bytes shared_bytes_ = 0;
  Bytes bytes_read_ = 0;
};

}  // namespace lowtide::residency
