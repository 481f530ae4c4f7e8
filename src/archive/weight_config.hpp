// The archive's tables of weights and constants.
#pragma once

#include <string>

#include "archive/json_tree.hpp"
#include "archive/record_reader.hpp"
#include "graph/weight_table.hpp"

namespace lowtide::archive {

/// Reads the tables of a program (JSON texts of data/weights/NAME_weights_config.json and its counterpart for
/// constants). Throws ArchiveError when a tensor leaves its record, records overlap, something is pickled or
/// sizes make no sense.
graph::WeightTable read_weight_table(const RecordReader& reader, const std::string& weights_record,
                                     const std::string& weights_json, const std::string& constants_record,
                                     const std::string& constants_json);

}  // namespace lowtide::archive
