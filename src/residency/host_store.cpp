#include "residency/host_store.hpp"

#include <algorithm>

#include "base/checked_math.hpp"
#include "lowtide/error.hpp"
#include "lowtide/log.hpp"

namespace lowtide::residency {
namespace {

/// Units start at page boundaries: page locks and direct reads work in pages.
constexpr Bytes kUnitAlignment = 4096;
/// Large enough that page locks, slow calls, are few; small enough that a refused one is not everything.
constexpr Bytes kSlabBytes = 64 * 1024 * 1024;

}  // namespace

Bytes stored_bytes(Bytes unit_bytes) {
  return round_up(unit_bytes, unit_bytes >= kUnitAlignment ? kUnitAlignment : 64);
}

/// Fills a store: first what others hold already, then memory for the rest, then its content.
class HostStore::Loader {
 public:
  Loader(HostStore& store, const memory::FileIdentity& archive, const graph::WeightTable& weights,
         device::DeviceExtras* extras, const HostStoreOptions& options)
      : store_(store), file_(archive), weights_(weights), extras_(extras), options_(options) {}

  /// Storages that lie and travel together.
  struct Group {
    std::vector<plan::PackedStorage> content;
    Bytes bytes = 0;
    std::byte* place = nullptr;
  };

  void load(std::vector<Group> groups, bool page_locked) {
    if (options_.pool != nullptr) {
      for (Group& group : groups) share(group);
    }
    std::vector<Group*> own;
    for (Group& group : groups) {
      if (group.place == nullptr) own.push_back(&group);
    }
    Bytes total = 0, locked_bytes = 0;
    bool refused = !page_locked || extras_ == nullptr;
    for (std::size_t begin = 0; begin < own.size();) {
      Bytes bytes = 0;
      std::size_t end = begin;
      while (end < own.size() && (end == begin || bytes + stored_bytes(own[end]->bytes) <= kSlabBytes))
        bytes += stored_bytes(own[end++]->bytes);
      const bool lock = !refused && locked_bytes + bytes <= options_.pin_budget;
      auto slab = std::make_shared<memory::HostSlab>(lock ? memory::HostSlab(bytes, *extras_)
                                                          : memory::HostSlab::pageable(bytes));
      refused = refused || (lock && !slab->locked());
      total += bytes;
      if (slab->locked()) locked_bytes += bytes;
      std::byte* place = slab->data();
      for (; begin < end; ++begin) {
        own[begin]->place = place;
        read(*own[begin], place);
        if (options_.pool != nullptr) options_.pool->add(slab, place, own[begin]->bytes);
        place += stored_bytes(own[begin]->bytes);
      }
      store_.slabs_.push_back(std::move(slab));
    }
    for (const Group& group : groups) {
      for (const plan::PackedStorage& piece : group.content)
        store_.places_[piece.storage] = group.place + piece.offset;
    }
    file_.check();
    if (!options_.on_disk.empty()) file_.drop_cache();
    if (page_locked && extras_ != nullptr && locked_bytes < total) warn(total, total - locked_bytes, refused);
  }

 private:
  void read(const Group& group, std::byte* to) const {
    for (const plan::PackedStorage& piece : group.content) {
      file_.read(to + piece.offset, weights_.files[piece.storage].bytes,
                 weights_.files[piece.storage].offset);
      store_.bytes_read_ += weights_.files[piece.storage].bytes;
    }
  }

  void share(Group& group) {
    if (!options_.pool->may_have(group.bytes)) return;
    std::vector<std::byte> content(group.bytes);
    read(group, content.data());
    WeightPool::Copy copy = options_.pool->find(content);
    if (!copy.slab) return;
    group.place = copy.data;
    store_.slabs_.push_back(std::move(copy.slab));
    store_.shared_bytes_ += group.bytes;
  }

  static void warn(Bytes total, Bytes pageable, bool refused) {
    log_message(
        LogLevel::warning,
        (refused ? "the system refused to page-lock " : "the pin budget leaves out ") +
            format_bytes(pageable) + " of " + format_bytes(total) +
            " of weights: they are copied through page-locked pieces, which takes the host's time; " +
            (refused ? "raise the limit (ulimit -l) or close other programs" : "close other programs"));
  }

  HostStore& store_;
  const memory::CheckedFile file_;
  const graph::WeightTable& weights_;
  device::DeviceExtras* extras_;
  const HostStoreOptions& options_;
};

HostStore::HostStore(const memory::FileIdentity& archive, const graph::WeightTable& weights,
                     const plan::Packing& packing, std::span<const std::uint32_t> tables,
                     device::DeviceExtras* extras, const HostStoreOptions& options)
    : places_(weights.files.size(), nullptr), on_disk_(options.on_disk) {
  Loader loader(*this, archive, weights, extras, options);
  std::vector<Loader::Group> units;
  for (plan::UnitId id = 0; id < packing.units.size(); ++id) {
    if (holds(packing, id)) units.push_back({packing.content[id], packing.units[id].bytes});
  }
  loader.load(std::move(units), /*page_locked=*/true);
  std::vector<Loader::Group> only_host;
  for (const std::uint32_t table : tables) {
    if (places_[table] != nullptr) continue;  // also read on the device: one copy serves both
    only_host.push_back({{{.storage = table}}, weights.files[table].bytes});
  }
  loader.load(std::move(only_host), /*page_locked=*/false);
}

bool HostStore::locked(const std::byte* place) const {
  return std::any_of(slabs_.begin(), slabs_.end(), [&](const auto& slab) {
    return slab->locked() && slab->data() <= place && place < slab->data() + slab->bytes();
  });
}

std::span<const std::byte> HostStore::unit(const plan::Packing& packing, plan::UnitId id) const {
  const plan::PackedStorage& first = packing.content[id].front();
  return {places_[first.storage] + first.begin - first.offset, packing.units[id].bytes};
}

}  // namespace lowtide::residency
