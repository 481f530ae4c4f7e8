#include "tensor_file/file_error.hpp"

#include <array>
#include <cstdio>

#include "lowtide/error.hpp"

namespace lowtide::tensor_file {

std::string printable(std::string_view text) {
  constexpr std::size_t kLongest = 120;
  std::string line;
  for (const char c : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      line += c;
      continue;
    }
    std::array<char, 8> escaped;
    std::snprintf(escaped.data(), escaped.size(), "\\x%02x", byte);
    line += escaped.data();
  }
  if (text.size() > kLongest) line += "...";
  return line;
}

void fail_reading(const std::filesystem::path& path, const std::string& reason, const std::string& remedy) {
  throw InputError("cannot read '" + path.string() + "': " + reason + "; " + remedy);
}

}  // namespace lowtide::tensor_file
