// Messages about files. Names and text in them come from strangers: they are made printable and short first.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace lowtide::tensor_file {

/// `text` on one line: control characters as \xNN, at most about 120 characters.
std::string printable(std::string_view text);

/// Throws InputError "cannot read 'PATH': REASON; REMEDY".
[[noreturn]] void fail_reading(const std::filesystem::path& path, const std::string& reason,
                               const std::string& remedy);

}  // namespace lowtide::tensor_file
