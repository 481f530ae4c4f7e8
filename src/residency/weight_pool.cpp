#include "residency/weight_pool.hpp"

#include <cstring>

namespace lowtide::residency {

WeightPool::Copy WeightPool::find(std::span<const std::byte> content) {
  auto [known, end] = copies_.equal_range(content.size());
  while (known != end) {
    const std::shared_ptr<const memory::HostSlab> slab = known->second.slab.lock();
    if (!slab) {
      known = copies_.erase(known);
      continue;
    }
    if (std::memcmp(known->second.data, content.data(), content.size()) == 0)
      return {slab, known->second.data};
    ++known;
  }
  return {};
}

void WeightPool::add(const std::shared_ptr<const memory::HostSlab>& slab, std::byte* data, Bytes bytes) {
  copies_.emplace(bytes, Known{slab, data});
}

}  // namespace lowtide::residency
