// A tensor with its name.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace lowtide {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

}  // namespace lowtide
