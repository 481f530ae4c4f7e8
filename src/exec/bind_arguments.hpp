// From an argument as exported to one as the operator's schema wants it.
#pragma once

#include <ATen/core/function_schema.h>

#include "exec/bound_program.hpp"

namespace lowtide::exec {

/// The formal argument decides the form: Tensor?[] for lists of tensors, a 0-d tensor for a number where a
/// tensor is wanted, a double for an int. Devices become `device`. `actual` null: the schema's default.
/// Throws ArchiveError when it cannot fit.
BoundArgument bind_argument(const c10::Argument& formal, const graph::Argument* actual, c10::Device device);

/// For symbolic operations, which have no schema.
BoundArgument bind_symbolic_argument(const graph::Argument& actual);

/// A number as the 0-d tensor that takes part in type promotion as a number does.
at::Tensor number_tensor(const c10::IValue& number);

}  // namespace lowtide::exec
