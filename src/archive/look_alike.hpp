// Files that are taken for exported programs but are something else: what they are, and how to get an
// exported program.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lowtide::archive {

/// From the first bytes: what the file is when it cannot be an exported program, such as "is empty" or "is a
/// GGUF file; ...". Nothing for zip archives and for files that cannot be read.
std::optional<std::string> look_alike_by_content(const std::filesystem::path& path);

/// From the record names of a zip archive without exported programs.
std::string look_alike_by_records(const std::vector<std::string>& names);

/// For zip archives that LibTorch does not read: whose first entry shows that another program made them.
std::optional<std::string> look_alike_by_first_entry(const std::filesystem::path& path);

}  // namespace lowtide::archive
