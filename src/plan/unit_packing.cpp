#include "plan/unit_packing.hpp"

#include <algorithm>
#include <string>

namespace lowtide::plan {
namespace {

/// Sort key inside a unit: whole cache lines first, then large elements, so that nothing needs padding.
int alignment_rank(const StorageUse& s) {
  if (s.bytes % 64 == 0) return 0;
  for (int rank = 1; rank < 5; ++rank) {
    const Bytes size = 32U >> rank;  // 16, 8, 4, 2
    if (s.bytes % size == 0 && s.element_size <= size) return rank;
  }
  return 5;
}

class Packer {
 public:
  explicit Packer(std::span<const StorageUse> storages) : storages_(storages) {}

  void add(std::uint32_t storage) {
    const StorageUse& s = storages_[storage];
    const bool alone = s.state || s.bytes >= kSmallStorage;
    if (alone) {
      finish({storage});
      return;
    }
    open_.push_back(storage);
    open_bytes_ += s.bytes;
    if (open_bytes_ >= kPackedUnit) flush();
  }

  void flush() {
    if (!open_.empty()) finish(std::move(open_));
    open_.clear();
    open_bytes_ = 0;
  }

  Packing take() {
    flush();
    std::vector<std::size_t> order(packing_.units.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return packing_.units[a].uses.front() < packing_.units[b].uses.front();
    });
    Packing sorted;
    for (const std::size_t i : order) {
      sorted.units.push_back(std::move(packing_.units[i]));
      sorted.content.push_back(std::move(packing_.content[i]));
    }
    return sorted;
  }

 private:
  void finish(std::vector<std::uint32_t> members) {
    std::stable_sort(members.begin(), members.end(), [&](std::uint32_t a, std::uint32_t b) {
      return alignment_rank(storages_[a]) < alignment_rank(storages_[b]);
    });
    Unit unit;
    unit.packed = members.size() > 1;
    std::vector<PackedStorage> content;
    for (const std::uint32_t member : members) {
      const StorageUse& s = storages_[member];
      content.push_back({member, unit.bytes});
      unit.bytes += s.bytes;
      unit.state = unit.state || s.state;
      unit.uses.insert(unit.uses.end(), s.uses.begin(), s.uses.end());
    }
    std::sort(unit.uses.begin(), unit.uses.end());
    unit.uses.erase(std::unique(unit.uses.begin(), unit.uses.end()), unit.uses.end());
    packing_.units.push_back(std::move(unit));
    packing_.content.push_back(std::move(content));
  }

  std::span<const StorageUse> storages_;
  std::vector<std::uint32_t> open_;
  Bytes open_bytes_ = 0;
  Packing packing_;
};

}  // namespace

Packing pack_units(std::span<const StorageUse> storages) {
  std::vector<std::uint32_t> order;
  for (std::uint32_t i = 0; i < storages.size(); ++i) {
    if (!storages[i].uses.empty() && storages[i].bytes > 0) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return storages[a].uses.front() < storages[b].uses.front();
  });
  Packer packer(storages);
  for (const std::uint32_t storage : order) packer.add(storage);
  return packer.take();
}

}  // namespace lowtide::plan
