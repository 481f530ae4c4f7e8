// From the caller's tensors to what the planner and the executor take.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "session/model_data.hpp"

namespace lowtide::detail {

/// One tensor per user input. Complex inputs given as real pairs become complex; constant inputs are checked
/// against the value fixed at export and dropped. Throws InputError naming the input.
std::vector<at::Tensor> complete_inputs(const ModelData& model, const std::vector<at::Tensor>& given);

/// Shapes and dtypes of completed inputs, with the values of integers that sizes depend on.
graph::InputDescriptions describe_inputs(const ModelData& model, const std::vector<at::Tensor>& inputs);

}  // namespace lowtide::detail
