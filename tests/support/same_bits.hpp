// Equality of results, to the bit.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstring>
#include <vector>

namespace lowtide::test {

/// Same shapes, dtypes and bytes; undefined tensors equal only each other. Contiguous CPU tensors.
inline bool same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].defined() != b[i].defined()) return false;
    if (!a[i].defined()) continue;
    if (a[i].sizes() != b[i].sizes() || a[i].scalar_type() != b[i].scalar_type()) return false;
    if (a[i].nbytes() > 0 && std::memcmp(a[i].const_data_ptr(), b[i].const_data_ptr(), a[i].nbytes()) != 0)
      return false;
  }
  return true;
}

}  // namespace lowtide::test
