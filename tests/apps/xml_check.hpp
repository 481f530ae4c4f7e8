// Is a text a well-formed XML document, as far as our pictures go?
#pragma once

#include <cctype>
#include <string>
#include <string_view>
#include <vector>

namespace lowtide::test {

/// "" where it is; else what is wrong, in words. Knows elements, attributes, the five entities and the
/// declaration; no comments, CDATA or document types.
inline std::string xml_problem(std::string_view text) {
  const auto at = [&](std::size_t i) { return i < text.size() ? text[i] : '\0'; };
  const auto character_problem = [&](std::size_t& i) -> std::string {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 && byte != '\n') return "a control character";
    if (byte != '&') return "";
    for (const std::string_view entity : {"&amp;", "&lt;", "&gt;", "&quot;", "&apos;"}) {
      if (!text.substr(i).starts_with(entity)) continue;
      i += entity.size() - 1;
      return "";
    }
    return "a bare '&'";
  };
  const auto name = [&](std::size_t& i) {
    const std::size_t begin = i;
    while (std::isalnum(static_cast<unsigned char>(at(i))) != 0 || at(i) == '-' || at(i) == ':') ++i;
    return std::string(text.substr(begin, i - begin));
  };

  constexpr std::string_view kDeclaration = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  if (!text.starts_with(kDeclaration)) return "no declaration";
  std::vector<std::string> open;
  std::size_t elements = 0;
  for (std::size_t i = kDeclaration.size(); i < text.size(); ++i) {
    if (text[i] == '>') return "a bare '>'";
    if (text[i] != '<') {
      if (const std::string problem = character_problem(i); !problem.empty()) return problem;
      if (open.empty() && text[i] != '\n') return "text outside of the root";
      continue;
    }
    ++i;
    if (at(i) == '/') {
      const std::string closed = name(++i);
      if (open.empty() || open.back() != closed) return "'" + closed + "' is closed but not open";
      open.pop_back();
      if (at(i) != '>') return "a closing tag with more in it";
      continue;
    }
    if (open.empty() && elements > 0) return "two roots";
    ++elements;
    const std::string element = name(i);
    if (element.empty()) return "a bare '<'";
    while (at(i) == ' ') {
      if (name(++i).empty()) return "no attribute name in '" + element + "'";
      if (at(i) != '=' || at(i + 1) != '"') return "an attribute of '" + element + "' is not quoted";
      for (i += 2; at(i) != '"'; ++i) {
        if (i >= text.size() || text[i] == '<') return "an attribute of '" + element + "' does not end";
        if (const std::string problem = character_problem(i); !problem.empty()) return problem;
      }
      ++i;
    }
    const bool closes = at(i) == '/';
    if (closes) ++i;
    if (at(i) != '>') return "the tag '" + element + "' does not end";
    if (!closes) open.push_back(element);
  }
  return open.empty() && elements > 0 ? "" : "an element is not closed";
}

}  // namespace lowtide::test
