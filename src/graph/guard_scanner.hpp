// A guard's text and a place in it.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "graph/quote.hpp"

namespace lowtide::graph {

/// Thrown for a text that is not understood, and caught where the guard is read.
struct NotUnderstood {
  std::string reason;
};

/// Tokens from left to right; spaces before them are skipped. Refers to the text. Throws NotUnderstood.
class GuardScanner {
 public:
  explicit GuardScanner(std::string_view text) : text_(text) {}

  /// One level of nesting for as long as it lives.
  class Level {
   public:
    explicit Level(GuardScanner& scanner) : scanner_(scanner) {
      if (scanner.depth_ == kDeepest) throw NotUnderstood{"nested too deeply"};
      ++scanner.depth_;
    }
    ~Level() { --scanner_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    GuardScanner& scanner_;
  };

  static bool is_digit(char c) { return c >= '0' && c <= '9'; }

  std::size_t position() const { return pos_; }
  [[noreturn]] void stop() const { stop_at(pos_); }
  [[noreturn]] void stop_at(std::size_t position) const {
    throw NotUnderstood{position < text_.size()
                            ? "not understood at character " + std::to_string(position + 1)
                            : "ends too early"};
  }

  /// The next character that is no space; 0 at the end.
  char peek() {
    while (pos_ < text_.size() && (text_[pos_] == ' ' || text_[pos_] == '\t')) ++pos_;
    return pos_ < text_.size() ? text_[pos_] : '\0';
  }
  bool accept(std::string_view token) {
    peek();
    if (text_.substr(pos_, token.size()) != token) return false;
    pos_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) stop();
  }
  void expect_end() {
    peek();
    if (pos_ < text_.size()) stop();
  }
  /// Takes the next word only if all of it is `word`.
  bool accept_word(std::string_view word) {
    peek();
    const std::size_t end = pos_ + word.size();
    if (text_.substr(pos_, word.size()) != word || (end < text_.size() && is_word(text_[end]))) return false;
    pos_ = end;
    return true;
  }
  /// Letters, digits and underscores, at least one.
  std::string_view word() {
    const std::size_t start = pos_;
    while (pos_ < text_.size() && is_word(text_[pos_])) ++pos_;
    if (pos_ == start) stop();
    return text_.substr(start, pos_ - start);
  }
  /// Text in quotes of either kind.
  std::string quoted() {
    const char mark = peek();
    if (mark != '\'' && mark != '"') stop();
    auto text = unescaped(text_, pos_);
    if (!text) stop();
    return std::move(*text);
  }
  /// Digits with an optional sign, as they are written.
  std::string index() {
    const bool negative = accept("-");
    peek();
    const std::size_t start = pos_;
    while (pos_ < text_.size() && is_digit(text_[pos_])) ++pos_;
    if (start == pos_) stop();
    return (negative ? "-" : "") + std::string(text_.substr(start, pos_ - start));
  }
  /// A number without sign.
  std::variant<std::int64_t, double> number() {
    const char* const begin = text_.data() + pos_;
    const char* const end = text_.data() + text_.size();
    std::int64_t integer = 0;
    const auto whole = std::from_chars(begin, end, integer);
    if (whole.ptr != begin && (whole.ptr == end || (*whole.ptr != '.' && *whole.ptr != 'e'))) {
      if (whole.ec != std::errc()) throw NotUnderstood{"has an integer of more than 64 bit"};
      finish_number(whole.ptr);
      return integer;
    }
    double real = 0;
    const auto read = std::from_chars(begin, end, real);
    if (read.ec != std::errc()) stop();
    finish_number(read.ptr);
    return real;
  }

 private:
  static constexpr int kDeepest = 200;

  static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c);
  }

  void finish_number(const char* end) {
    pos_ = static_cast<std::size_t>(end - text_.data());
    if (pos_ < text_.size() && is_word(text_[pos_])) stop();  // 0x10, 1_000
  }

  std::string_view text_;
  std::size_t pos_ = 0;
  int depth_ = 0;
};

}  // namespace lowtide::graph
