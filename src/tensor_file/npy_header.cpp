// The header of an .npy file is a Python dict literal such as
//   {'descr': '<f4', 'fortran_order': False, 'shape': (1, 3, 640, 640), }
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "tensor_file/file_error.hpp"
#include "tensor_file/npy.hpp"

namespace lowtide::tensor_file {
namespace {

using c10::ScalarType;

constexpr std::array<std::pair<std::string_view, ScalarType>, 14> kTypes{{
    {"b1", ScalarType::Bool},
    {"i1", ScalarType::Char},
    {"i2", ScalarType::Short},
    {"i4", ScalarType::Int},
    {"i8", ScalarType::Long},
    {"u1", ScalarType::Byte},
    {"u2", ScalarType::UInt16},
    {"u4", ScalarType::UInt32},
    {"u8", ScalarType::UInt64},
    {"f2", ScalarType::Half},
    {"f4", ScalarType::Float},
    {"f8", ScalarType::Double},
    {"c8", ScalarType::ComplexFloat},
    {"c16", ScalarType::ComplexDouble},
}};

/// Reads the few forms of literal that numpy writes; everything returns false or nothing when the text is
/// another.
class LiteralReader {
 public:
  explicit LiteralReader(std::string_view text) : rest_(text) {}

  bool skip(char expected) {
    skip_blanks();
    if (rest_.empty() || rest_.front() != expected) return false;
    rest_.remove_prefix(1);
    return true;
  }

  bool at_end() {
    skip_blanks();
    return rest_.empty();
  }

  std::optional<std::string_view> quoted() {
    skip_blanks();
    if (rest_.empty() || (rest_.front() != '\'' && rest_.front() != '"')) return std::nullopt;
    const std::size_t end = rest_.find(rest_.front(), 1);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view text = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return text;
  }

  std::optional<bool> boolean() {
    skip_blanks();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (!rest_.starts_with(word)) continue;
      rest_.remove_prefix(word.size());
      return value;
    }
    return std::nullopt;
  }

  std::optional<std::vector<std::int64_t>> tuple() {
    if (!skip('(')) return std::nullopt;
    std::vector<std::int64_t> numbers;
    while (!skip(')')) {
      skip_blanks();
      std::int64_t number = 0;
      const auto [end, status] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), number);
      if (status != std::errc()) return std::nullopt;
      rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
      if (rest_.starts_with('L')) rest_.remove_prefix(1);  // written by Python 2
      numbers.push_back(number);
      if (skip(',')) continue;
      if (!skip(')')) return std::nullopt;
      break;
    }
    return numbers;
  }

 private:
  void skip_blanks() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\n')) rest_.remove_prefix(1);
  }

  std::string_view rest_;
};

ScalarType parse_type(const InputFile& file, const std::string& what, std::string_view descr) {
  const std::string shown = "'" + printable(descr) + "'";
  const auto unsupported = [&](const std::string& kind) {
    file.fail(what + " has " + kind + " (dtype " + shown + ")",
              "convert it with .astype to bool, int, uint, float or complex");
  };
  if (descr.size() < 2) file.fail_damaged(what + " has the malformed dtype " + shown);
  const char order = descr.front();
  const std::string_view code = descr.substr(1);
  if (code.front() == 'O') unsupported("Python objects");
  for (const auto& [name, type] : kTypes) {
    if (name != code) continue;
    if (order == '>' && c10::elementSize(type) > 1) {
      file.fail(what + " is big-endian (dtype " + shown + ")",
                "convert it with .astype('<" + std::string(code) + "')");
    }
    if (order != '<' && order != '|' && order != '=' && order != '>') break;
    return type;
  }
  unsupported("elements that are no numbers of LibTorch");
  __builtin_unreachable();
}

}  // namespace

NpyHeader parse_npy_header(const InputFile& file, const std::string& what, std::string_view text) {
  NpyHeader header;
  LiteralReader reader(text);
  const auto malformed = [&] { file.fail_damaged(what + " has a malformed array header"); };
  bool has_type = false, has_order = false, has_shape = false;
  if (!reader.skip('{')) malformed();
  while (!reader.skip('}')) {
    const auto key = reader.quoted();
    if (!key || !reader.skip(':')) malformed();
    if (*key == "descr" && !has_type) {
      if (reader.skip('['))
        file.fail(what + " is a structured array", "save its fields as arrays of their own");
      const auto descr = reader.quoted();
      if (!descr) malformed();
      header.type = parse_type(file, what, *descr);
      has_type = true;
    } else if (*key == "fortran_order" && !has_order) {
      const auto order = reader.boolean();
      if (!order) malformed();
      header.fortran_order = *order;
      has_order = true;
    } else if (*key == "shape" && !has_shape) {
      auto sizes = reader.tuple();
      if (!sizes) malformed();
      header.sizes = std::move(*sizes);
      has_shape = true;
    } else {
      malformed();
    }
    if (reader.skip(',')) continue;
    if (!reader.skip('}')) malformed();
    break;
  }
  if (!reader.at_end() || !has_type || !has_order || !has_shape) malformed();
  return header;
}

}  // namespace lowtide::tensor_file
