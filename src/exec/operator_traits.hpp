// What the registered operators say about a graph: does each exist, which results share memory with which
// arguments, what is written in place. Fills Node::traits, which aliasing and lifetimes read.
#pragma once

#include "graph/graph.hpp"

namespace lowtide::exec {

/// Resolves every node of `program`. Throws UnsupportedOp naming operator, node and source line for operators
/// that are not registered, for higher-order operators and for unknown Python targets.
void annotate_operators(graph::Program& program);
/// The same for one node.
void annotate_operator(graph::Node& node);

/// Nodes that only check or constrain what export already knew; they are not run.
bool is_skipped(const graph::Node& node);

/// Does the operator draw from a generator that all jobs share?
bool is_random(const graph::Node& node);

/// Is each result without alias traits memory of its own for certain? Not of operators that return their
/// argument when there is nothing to do, or that PyTorch says may do so.
bool surely_fresh(const graph::Node& node);

/// Symbolic arithmetic done by us rather than by an operator: _operator.*, math.*, torch.sym_*, aten.sym_size
/// and relatives.
bool is_symbolic(const graph::Node& node);

}  // namespace lowtide::exec
