// Pointwise operators write their result over an operand that dies with them.
//
// The bits are the same: these kernels read an element of each operand before they write the element of the
// result (ATen's TensorIterator allows a result to be one of its operands). What is saved is one tensor per
// operator: without it, a chain of activations takes up to twice its lower bound.
#pragma once

#include <cstddef>

#include "graph/graph.hpp"

namespace lowtide::exec {

/// Rewrites the nodes where that is safe into their `out=` or in-place form and updates their traits; returns
/// how many. The operand must be a tensor that a node before made (no weight, no user input, not the piece of
/// a larger tensor), that nobody reads later under any name, and that agrees with the result in recorded
/// dtype, sizes and strides. Requires annotate_operators().
std::size_t reuse_operands(graph::Program& program);

/// Is the node in such a form (also where the export wrote it)? It has written nothing yet when it is refused
/// memory.
bool reuses_operand(const graph::Node& node);

}  // namespace lowtide::exec
