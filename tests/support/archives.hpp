// The archives that tools/get_models made, and what belongs to them.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace lowtide::test {

struct Archive {
  std::string name;
  std::filesystem::path path;
  std::vector<std::filesystem::path> inputs;   // NAME.in.safetensors, NAME.1.in.safetensors...
  std::vector<std::filesystem::path> outputs;  // what PyTorch computed for them
  bool stateful = false;  // the calls form one sequence: only the first starts from the archive's state
};

/// Archives with higher-order operators, which this version refuses.
inline bool has_higher_order(const std::string& name) {
  static const std::vector<std::string> kNames{"zoo_cond", "zoo_scan", "zoo_while", "zoo_map",
                                               "table_slanet_full"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

/// All archives in `folder`, by name. Tests that need them fail when there are none: run tools/get_models.
inline std::vector<Archive> find_archives(const std::filesystem::path& folder) {
  std::vector<Archive> archives;
  if (!std::filesystem::is_directory(folder)) return archives;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".pt2") continue;
    Archive archive{.name = entry.path().stem().string(), .path = entry.path()};
    for (int call = 0;; ++call) {
      const std::string base = archive.name + (call ? "." + std::to_string(call) : "");
      const auto in = folder / (base + ".in.safetensors");
      if (!std::filesystem::exists(in)) break;
      archive.inputs.push_back(in);
      archive.outputs.push_back(folder / (base + ".out.safetensors"));
    }
    archive.stateful =
        archive.name.find("static") != std::string::npos || archive.name.find("mutate") != std::string::npos;
    archives.push_back(std::move(archive));
  }
  std::sort(archives.begin(), archives.end(),
            [](const Archive& a, const Archive& b) { return a.name < b.name; });
  return archives;
}

}  // namespace lowtide::test
