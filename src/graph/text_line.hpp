// One line of graph text and a place in it.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "graph/quote.hpp"
#include "lowtide/error.hpp"

namespace lowtide::graph::text {

/// Tokens of one line, taken from left to right; spaces between them are skipped. Reading past what is there
/// throws ArchiveError with line and column. Refers to the text, which must outlive it.
class Line {
 public:
  Line(std::string_view text, std::size_t number) : text_(text), number_(number) {}

  [[noreturn]] void fail(const std::string& why) const;

  /// The next character that is no space; 0 at the end.
  char peek();
  /// Is there nothing left but a comment?
  bool at_end();
  bool accept(std::string_view token);
  void expect(std::string_view token);
  void expect_end();
  /// Takes the next word only if all of it is `word`.
  bool accept_word(std::string_view word);
  /// Letters, digits, underscores and dots; may be empty.
  std::string_view bare();
  /// A bare name, or one in quotes or backticks.
  std::string name();
  /// Text in quotes or backticks, which come next.
  std::string string();
  /// Text up to one of `ends` that is outside of parentheses and backticks.
  std::string_view until(std::string_view ends);
  /// The characters of a number; may be empty.
  std::string_view digits();
  std::int64_t integer();
  /// The comment at the end without its mark; empty when there is none.
  std::string comment();

  std::size_t position() const { return pos_; }
  void back_to(std::size_t position) { pos_ = position; }

 private:
  std::string_view text_;
  std::size_t number_;
  std::size_t pos_ = 0;
};

inline void Line::fail(const std::string& why) const {
  throw ArchiveError("graph text, line " + std::to_string(number_) + ", column " + std::to_string(pos_ + 1) +
                     ": " + why);
}

inline char Line::peek() {
  while (pos_ < text_.size() && (text_[pos_] == ' ' || text_[pos_] == '\t' || text_[pos_] == '\r')) ++pos_;
  return pos_ < text_.size() ? text_[pos_] : '\0';
}

inline bool Line::at_end() {
  return peek() == '\0' || peek() == '#';
}

inline bool Line::accept(std::string_view token) {
  peek();
  if (text_.substr(pos_, token.size()) != token) return false;
  pos_ += token.size();
  return true;
}

inline void Line::expect(std::string_view token) {
  if (!accept(token)) fail("expected '" + std::string(token) + "'");
}

inline void Line::expect_end() {
  if (!at_end()) fail("unexpected text");
}

inline bool Line::accept_word(std::string_view word) {
  const std::size_t start = pos_;
  peek();
  if (bare() == word) return true;
  pos_ = start;
  return false;
}

inline std::string_view Line::bare() {
  peek();
  const std::size_t start = pos_;
  while (pos_ < text_.size() && is_name_character(text_[pos_])) ++pos_;
  return text_.substr(start, pos_ - start);
}

inline std::string Line::name() {
  const char first = peek();
  if (first == '"' || first == '`') return string();
  const std::string_view word = bare();
  if (word.empty()) fail("expected a name");
  return std::string(word);
}

inline std::string Line::string() {
  auto result = unescaped(text_, pos_);
  if (!result) fail("the quotes are not closed");
  return std::move(*result);
}

inline std::string_view Line::until(std::string_view ends) {
  peek();
  const std::size_t start = pos_;
  int depth = 0;
  while (pos_ < text_.size()) {
    const char c = text_[pos_];
    if (depth == 0 && ends.find(c) != std::string_view::npos) break;
    if (c == '`') {
      string();
      continue;
    }
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    ++pos_;
  }
  return text_.substr(start, pos_ - start);
}

inline std::string_view Line::digits() {
  peek();
  const std::size_t start = pos_;
  if (pos_ < text_.size() && text_[pos_] == '-') ++pos_;
  while (pos_ < text_.size() &&
         ((text_[pos_] >= '0' && text_[pos_] <= '9') || text_[pos_] == '.' || text_[pos_] == 'e' ||
          ((text_[pos_] == '-' || text_[pos_] == '+') && text_[pos_ - 1] == 'e'))) {
    ++pos_;
  }
  return text_.substr(start, pos_ - start);
}

inline std::int64_t Line::integer() {
  const std::string_view text = digits();
  std::int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size()) fail("expected an integer");
  return value;
}

inline std::string Line::comment() {
  if (peek() != '#') return {};
  ++pos_;
  peek();
  std::string_view rest = text_.substr(pos_);
  while (!rest.empty() && (rest.back() == ' ' || rest.back() == '\r')) rest.remove_suffix(1);
  return std::string(rest);
}

}  // namespace lowtide::graph::text
