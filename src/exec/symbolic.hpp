// The small interpreter for what export leaves as Python: arithmetic on sizes, comparisons, size queries.
#pragma once

#include <ATen/core/ivalue.h>

#include <optional>
#include <span>

#include "graph/graph.hpp"

namespace lowtide::exec {

enum class SymbolicOp : std::uint8_t {
  add,
  sub,
  mul,
  floor_div,
  true_div,
  mod,
  pow,
  neg,
  pos,
  abs,
  eq,
  ne,
  lt,
  le,
  gt,
  ge,
  logical_and,
  logical_or,
  logical_not,
  min,
  max,
  sum,
  ite,
  to_int,
  to_float,
  sqrt,
  floor,
  ceil,
  trunc,
  round,
  sym_size,
  sym_stride,
  sym_numel,
  sym_storage_offset,
  assert_scalar,
};

/// Which symbolic operation a node is; nothing for operators of the dispatcher.
std::optional<SymbolicOp> find_symbolic(const graph::Node& node);

/// Integers, floats and bools, and the tensor whose size is asked. Python's rules: floor division and modulo
/// round towards minus infinity, true division gives a float. Throws Error on division by zero, overflow and
/// failed assertions.
c10::IValue evaluate_symbolic(SymbolicOp op, std::span<const c10::IValue> arguments);

}  // namespace lowtide::exec
