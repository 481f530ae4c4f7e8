// models/NAME.json -> graph::Program: the export schema, version 8 (torch/_export/serde/schema.py).
#pragma once

#include <string>

#include "archive/json_tree.hpp"
#include "graph/graph.hpp"

namespace lowtide::archive {

/// Throws ArchiveError that names the place in the record for whatever is missing, of a wrong type, or not
/// supported.
graph::Program read_program(Json exported_program, const std::string& name);

}  // namespace lowtide::archive
