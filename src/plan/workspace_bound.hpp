// How much memory an operator may take inside, beyond its results: an upper bound from shapes, used until a
// shape has been measured.
//
// The rules are held above the truth by tests/session/workspace_bound_test.cpp, which measures every node of
// the test archives on the simulated card.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "graph/op_cost.hpp"
#include "lowtide/bytes.hpp"

namespace lowtide::plan {

/// A tensor argument as the rules see it.
struct Operand {
  graph::ShapeView shape;
  bool weight = false;      // parameter, buffer or constant: laid out as its operator wants it
  bool contiguous = false;  // row-major without gaps
};

/// `threads`: some operators take a buffer per thread. `op_name` without overload. `view` says that the
/// result only looks at its argument. Bytes, each allocation rounded to the granule.
Bytes workspace_bound(std::string_view op_name, std::span<const Operand> inputs,
                      std::span<const graph::ShapeView> outputs, bool view, int threads);

}  // namespace lowtide::plan
