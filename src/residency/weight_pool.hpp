// Host copies of weights by content: models of one session that have equal weights (the prompt and the decode
// program of a language model, say) hold them once.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>

#include "memory/host_slab.hpp"

namespace lowtide::residency {

/// Knows the copies that are alive; owns none. Not thread-safe.
class WeightPool {
 public:
  struct Copy {
    std::shared_ptr<const memory::HostSlab> slab;  // keeps it alive
    std::byte* data = nullptr;
  };

  /// Could there be an equal copy? Cheap: asks before anything is read.
  bool may_have(Bytes bytes) const { return copies_.contains(bytes); }
  /// A copy with these bytes; without slab if there is none.
  Copy find(std::span<const std::byte> content);
  void add(const std::shared_ptr<const memory::HostSlab>& slab, std::byte* data, Bytes bytes);

 private:
  struct Known {
    std::weak_ptr<const memory::HostSlab> slab;
    std::byte* data;
  };
  std::multimap<Bytes, Known> copies_;
};

}  // namespace lowtide::residency
