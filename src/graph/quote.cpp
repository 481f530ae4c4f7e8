#include "graph/quote.hpp"

#include <algorithm>

namespace lowtide::graph {
namespace {

constexpr char kDigits[] = "0123456789abcdef";

void append_hex(std::string& text, unsigned char byte) {
  text += "\\x";
  text += kDigits[byte >> 4];
  text += kDigits[byte & 15];
}

bool is_control(unsigned char byte) {
  return byte < 0x20 || byte == 0x7F;
}

std::optional<int> hex_value(char c) {
  const auto* end = kDigits + 16;
  const auto* found = std::find(kDigits, end, c);
  return found == end ? std::nullopt : std::optional(static_cast<int>(found - kDigits));
}

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

}  // namespace

std::string in_quotes(std::string_view name) {
  static constexpr std::size_t kLongest = 120;
  const bool cut = name.size() > kLongest;
  if (cut) {
    std::size_t end = kLongest;
    while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xC0) == 0x80)
      --end;  // not inside a UTF-8 sequence
    name = name.substr(0, end);
  }
  std::string text = "'";
  for (const char c : name) {
    if (is_control(static_cast<unsigned char>(c))) {
      append_hex(text, static_cast<unsigned char>(c));
    } else {
      text += c;
    }
  }
  return text + (cut ? "...'" : "'");
}

std::string escaped(std::string_view text, char mark) {
  std::string result(1, mark);
  for (const char c : text) {
    if (is_control(static_cast<unsigned char>(c))) {
      append_hex(result, static_cast<unsigned char>(c));
      continue;
    }
    if (c == mark || c == '\\') result += '\\';
    result += c;
  }
  return result + mark;
}

std::optional<std::string> unescaped(std::string_view text, std::size_t& pos) {
  const char mark = text[pos++];
  std::string result;
  while (pos < text.size()) {
    const char c = text[pos++];
    if (c == mark) return result;
    if (c != '\\') {
      result += c;
      continue;
    }
    if (pos == text.size()) return std::nullopt;
    const char next = text[pos++];
    if (next != 'x') {
      result += next;
      continue;
    }
    if (text.size() - pos < 2) return std::nullopt;
    const auto high = hex_value(text[pos]), low = hex_value(text[pos + 1]);
    if (!high || !low) return std::nullopt;
    result += static_cast<char>(*high * 16 + *low);
    pos += 2;
  }
  return std::nullopt;
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && is_letter(name.front()) && std::all_of(name.begin(), name.end(), is_name_character);
}

bool is_name_character(char c) {
  return is_letter(c) || is_digit(c) || c == '.';
}

}  // namespace lowtide::graph
