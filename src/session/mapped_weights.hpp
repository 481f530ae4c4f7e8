// Weights used in place on the cpu: the archive mapped into memory, nothing copied until it is touched.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <vector>

#include "session/model_data.hpp"

namespace lowtide::detail {

/// A private, writable mapping (operators may write scratch flags; nothing reaches the file). Storages that
/// the program writes get memory of their own, restored before each job. Not thread-safe.
class MappedWeights {
 public:
  explicit MappedWeights(const ModelData& model);
  ~MappedWeights();
  MappedWeights(const MappedWeights&) = delete;
  MappedWeights& operator=(const MappedWeights&) = delete;

  /// Weight `index` as a tensor over the mapping or over its own memory.
  at::Tensor tensor(std::uint32_t index) const;
  /// State as in the archive. Throws ArchiveError when the file changed since it was opened: a mapping of a
  /// file that shrank would crash.
  void begin_job();

 private:
  const ModelData& model_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::map<std::uint32_t, at::Tensor> state_;  // by file
};

}  // namespace lowtide::detail
