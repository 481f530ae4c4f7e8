// How callers name flattened inputs and outputs, from the tree specifications that export wrote
// (torch.utils._pytree, version 1).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "archive/json_tree.hpp"

namespace lowtide::archive {

/// Per leaf of the arguments' tree: "ids", "xs[0]", "d['idx']". `signature` is a ModuleCallSignature,
/// `named_tuples` the graph module's treespec_namedtuple_fields. An argument whose name is not recorded gets
/// "". Throws ArchiveError.
std::vector<std::string> input_names(Json signature, std::optional<Json> named_tuples);

/// Per leaf of the outputs' tree: dictionary keys and field names, joined with positions by dots ("parts.0");
/// leaves without any key on their way get "".
std::vector<std::string> output_names(Json signature, std::optional<Json> named_tuples);

}  // namespace lowtide::archive
