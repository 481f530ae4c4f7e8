// Graphs as readable text: for tests, error messages and `lowtide inspect --verbose`.
//
//   inputs ids: i64[s0, s1] strides [s1, 1]
//   weights embed.weight = w: f32[1000, 64]
//   x = aten::embedding(w, ids): f32[s0, s1, 64]
//   [y, z] = aten::split.Tensor(self=x, split_size=32, dim=2): f32[s0, s1, 32], f32[s0, s1, 32]   #
//   model.py:12 outputs y, z
//
// One statement a line; '#' begins a comment, which is kept as the source of a node. Further statements:
//   program NAME                               buffers NAME = v: T            updates buffer NAME = v
//   ranges s0: [2, 512], u0: [0, ]             constants NAME = v: T          updates input NAME = v
//   hints s0: 4                                objects NAME = v               updates parameter NAME = v
//   guard "L['x'].size()[0] <= 512"            tokens NAME = v                losses v
//   inputs "xs[0]" = xs_0: f32[s0]             fixed NAME = 2
//   outputs y, rows = sym_size, k = 3.5, None
//   graph body { ... }                         before the node that takes it as `graph body`
// Types: f32[2, s0], tensor (nothing recorded), sym_int(2*s0), sym_float, sym_bool, object; tensors may have
// `strides [...]` (contiguous if left out), `offset E`, `device cuda:0` (cpu if left out). Numbers without
// point are integers, lists of other empty lists than int are written floats[], bools[], strings[],
// tensors[].
#pragma once

#include <string>
#include <string_view>

#include "graph/graph.hpp"

namespace lowtide::graph {

/// One node as one line, without the newline.
std::string print_node(const Program& program, const Graph& graph, const Node& node);

/// The whole program. parse_graph(print_graph(p)) prints the same text again.
std::string print_graph(const Program& program);

/// Reads what print_graph writes. Throws ArchiveError with the line number.
Program parse_graph(std::string_view text);

/// Checks that each value is produced once and before its use, that ids are in range and outputs exist.
/// Throws ArchiveError naming node and value.
void verify(const Graph& graph);

}  // namespace lowtide::graph
