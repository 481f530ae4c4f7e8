// Reads .pt2 files made by torch.export.save. The file is treated as hostile: every size, offset and name is
// checked, nothing is unpickled. The weights themselves are not read here; the table says where they lie.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "graph/graph.hpp"
#include "graph/weight_table.hpp"

namespace lowtide::archive {

struct Pt2Archive {
  std::filesystem::path path;
  std::uint64_t file_bytes = 0;
  std::int64_t modified_ns = 0;  // modification time, to notice a file that changes under us
  std::string
      fingerprint;  // sha256 (hex) over model.json, weight tables and the central sizes: identifies the model
  std::vector<std::string> program_names;
  graph::Program program;
  graph::WeightTable weights;
};

/// Opens `path` and reads program `program_name` (empty: the only one). Throws ArchiveError in one line: what
/// the file is when it is none of ours (TorchScript, AOTInductor package, safetensors, GGUF, ONNX, pickle,
/// empty), or which record is damaged and how.
Pt2Archive read_pt2(const std::filesystem::path& path, const std::string& program_name = {});

}  // namespace lowtide::archive
