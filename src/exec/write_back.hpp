// Functional programs give the new values of their buffers as results; here they are written into the
// buffers, as programs that work in place do, so that all state is one thing.
#pragma once

#include <cstdint>
#include <span>

#include "graph/graph.hpp"

namespace lowtide::exec {

/// Replaces each buffer or parameter mutation among the outputs by a copy into it behind all other steps.
/// What such a copy would change under a result or under another copy is cloned before. `weight_file`: as for
/// graph::analyse_storages(). Requires annotate_operators(). Throws ArchiveError where a target does not
/// exist.
void write_back_mutations(graph::Program& program, std::span<const std::uint32_t> weight_file);

}  // namespace lowtide::exec
