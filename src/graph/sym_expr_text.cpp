// The texts of size expressions: reading sympy's and our own, writing our own.
#include <array>
#include <charconv>
#include <utility>

#include "graph/quote.hpp"
#include "graph/sym_expr.hpp"
#include "graph/sym_expr_builder.hpp"
#include "lowtide/error.hpp"

namespace lowtide::graph {

namespace {

constexpr int kDeepest = 200;

bool is_space(char c) {
  return c == ' ' || c == '\t';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c);
}

/// What both readers share: a place in the text, tokens, and errors that show it.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  [[noreturn]] void fail(const char* why) const {
    throw ArchiveError("size expression " + in_quotes(text_) + " " + why + " at character " +
                       std::to_string(pos_ + 1));
  }
  void enter() {
    if (++depth_ > kDeepest) fail("is nested too deeply");
  }
  void leave() { --depth_; }

  /// The next character that is no space; 0 at the end.
  char peek() {
    while (pos_ < text_.size() && is_space(text_[pos_])) ++pos_;
    return pos_ < text_.size() ? text_[pos_] : '\0';
  }
  bool accept(std::string_view token) {
    peek();
    if (text_.substr(pos_, token.size()) != token) return false;
    pos_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) fail("is malformed");
  }
  void expect_end() {
    if (peek() != '\0') fail("is malformed");
  }
  std::string_view word() {
    peek();
    const std::size_t start = pos_;
    while (pos_ < text_.size() && is_word(text_[pos_])) ++pos_;
    if (start == pos_) fail("is malformed");
    return text_.substr(start, pos_ - start);
  }
  std::string quoted_text() {
    auto text = unescaped(text_, pos_);
    if (!text) fail("is malformed");
    return std::move(*text);
  }
  /// Digits with an optional sign. Nothing, with the text consumed, when they do not fit 64 bit or a fraction
  /// follows.
  std::optional<std::int64_t> integer(bool negative) {
    peek();
    const std::size_t start = pos_;
    while (pos_ < text_.size() && is_digit(text_[pos_])) ++pos_;
    if (start == pos_) fail("is malformed");
    const std::string digits = (negative ? "-" : "") + std::string(text_.substr(start, pos_ - start));
    if (pos_ < text_.size() && (text_[pos_] == '.' || text_[pos_] == 'e')) {
      while (pos_ < text_.size() && (is_word(text_[pos_]) || text_[pos_] == '.')) ++pos_;
      return std::nullopt;
    }
    std::int64_t value = 0;
    const auto status = std::from_chars(digits.data(), digits.data() + digits.size(), value).ec;
    return status == std::errc() ? std::optional(value) : std::nullopt;
  }

 private:
  std::string_view text_;
  std::size_t pos_ = 0;
  int depth_ = 0;
};

SymExpr known_or_unknown(std::optional<std::int64_t> value) {
  return value ? SymExpr(*value) : SymExprBuilder::unknown();
}

/// Reads sympy's srepr: nested calls such as Add(Symbol('s0', integer=True), Integer(1)).
class CallParser {
 public:
  CallParser(std::string_view text, SymbolTable& symbols) : scan_(text), symbols_(symbols) {}

  SymExpr parse() {
    SymExpr expr = expression();
    scan_.expect_end();
    return expr;
  }

 private:
  using Op = SymExprBuilder::Op;

  SymExpr expression() {
    scan_.enter();
    SymExpr expr = leaf_or_call();
    scan_.leave();
    return expr;
  }

  SymExpr leaf_or_call() {
    const char next = scan_.peek();
    if (next == '\'' || next == '"') {
      scan_.quoted_text();
      return SymExprBuilder::unknown();
    }
    if (next == '(') {  // a tuple, as in Piecewise
      scan_.expect("(");
      arguments();
      return SymExprBuilder::unknown();
    }
    if (next == '-' || is_digit(next)) return known_or_unknown(scan_.integer(scan_.accept("-")));
    const std::string_view word = scan_.word();
    if (!scan_.accept("(")) return SymExprBuilder::unknown();  // a bare word: True, oo
    return call(word);
  }

  SymExpr call(std::string_view word) {
    if (word == "Integer") {
      const auto value = scan_.integer(scan_.accept("-"));
      scan_.expect(")");
      return known_or_unknown(value);
    }
    if (word == "Symbol") return symbol();
    if (word == "CeilToInt" || word == "FloorToInt") return rounded_quotient(word == "CeilToInt");
    const std::vector<SymExpr> operands = arguments();
    for (const auto& [name, op, least, most] : kWords) {
      if (word != name) continue;
      if (operands.size() < least || operands.size() > most) scan_.fail("has a wrong number of operands");
      return SymExprBuilder::make(op, operands);
    }
    return SymExprBuilder::unknown();
  }

  SymExpr symbol() {
    const char mark = scan_.peek();
    if (mark != '\'' && mark != '"') scan_.fail("is malformed");
    const std::string name = scan_.quoted_text();
    if (scan_.accept(",")) {
      arguments();  // assumptions
    } else {
      scan_.expect(")");
    }
    return SymExpr::symbol(symbols_.intern(name));
  }

  /// CeilToInt(IntTrueDiv(a, b)); of anything else we know nothing.
  SymExpr rounded_quotient(bool up) {
    if (!scan_.accept("IntTrueDiv(")) {
      arguments();
      return SymExprBuilder::unknown();
    }
    const std::vector<SymExpr> operands = arguments();
    scan_.expect(")");
    if (operands.size() != 2) scan_.fail("has a wrong number of operands");
    if (!up) return SymExprBuilder::make(Op::floor_div, operands);
    return SymExprBuilder::negate(
        SymExprBuilder::make(Op::floor_div, {SymExprBuilder::negate(operands[0]), operands[1]}));
  }

  /// Up to and including the closing parenthesis; keywords (evaluate=False) are skipped.
  std::vector<SymExpr> arguments() {
    std::vector<SymExpr> operands;
    if (scan_.accept(")")) return operands;
    do {
      SymExpr operand = expression();
      if (scan_.accept("=")) {
        expression();
      } else {
        operands.push_back(std::move(operand));
      }
    } while (scan_.accept(","));
    scan_.expect(")");
    return operands;
  }

  struct Word {
    std::string_view name;
    Op op;
    std::size_t least, most;
  };
  static constexpr std::size_t kMany = SIZE_MAX;
  static constexpr std::array<Word, 10> kWords{{{"Add", Op::add, 1, kMany},
                                                {"Mul", Op::mul, 1, kMany},
                                                {"Pow", Op::pow, 2, 2},
                                                {"PowByNatural", Op::pow, 2, 2},
                                                {"FloorDiv", Op::floor_div, 2, 2},
                                                {"CleanDiv", Op::floor_div, 2, 2},
                                                {"Mod", Op::mod, 2, 2},
                                                {"PythonMod", Op::mod, 2, 2},
                                                {"Max", Op::max, 1, kMany},
                                                {"Min", Op::min, 1, kMany}}};

  Scanner scan_;
  SymbolTable& symbols_;
};

/// Reads what SymExprPrinter writes.
class InfixParser {
 public:
  InfixParser(std::string_view text, SymbolTable& symbols) : scan_(text), symbols_(symbols) {}

  SymExpr parse() {
    SymExpr expr = sum();
    scan_.expect_end();
    return expr;
  }

 private:
  using Op = SymExprBuilder::Op;

  SymExpr sum() {
    scan_.enter();
    std::vector<SymExpr> terms{signed_term(scan_.accept("-"))};
    while (true) {
      if (scan_.accept("+")) {
        terms.push_back(signed_term(scan_.accept("-")));
      } else if (scan_.accept("-")) {
        terms.push_back(signed_term(true));
      } else {
        break;
      }
    }
    scan_.leave();
    return SymExprBuilder::make(Op::add, terms);
  }

  /// A sign directly before a number belongs to the number, so that the smallest integer can be read.
  SymExpr signed_term(bool negative) {
    if (negative && !is_digit(scan_.peek())) return SymExprBuilder::negate(term(false));
    return term(negative);
  }

  SymExpr term(bool negative) {
    SymExpr left = power(negative);
    while (true) {
      if (scan_.accept("//")) {
        left = SymExprBuilder::make(Op::floor_div, {left, power(false)});
      } else if (scan_.accept("%")) {
        left = SymExprBuilder::make(Op::mod, {left, power(false)});
      } else if (scan_.accept("*")) {
        left = SymExprBuilder::make(Op::mul, {left, power(false)});
      } else {
        return left;
      }
    }
  }

  SymExpr power(bool negative) {
    SymExpr base = atom(negative);
    if (!scan_.accept("**")) return base;
    return SymExprBuilder::make(Op::pow, {base, atom(false)});
  }

  SymExpr atom(bool negative) {
    const char next = scan_.peek();
    if (is_digit(next)) return known_or_unknown(scan_.integer(negative));
    if (scan_.accept("?")) return SymExprBuilder::unknown();
    if (next == '`') return SymExpr::symbol(symbols_.intern(scan_.quoted_text()));
    if (scan_.accept("(")) {
      SymExpr inner = sum();
      scan_.expect(")");
      return inner;
    }
    const std::string_view word = scan_.word();
    if (word != "max" && word != "min") return SymExpr::symbol(symbols_.intern(word));
    scan_.expect("(");
    std::vector<SymExpr> operands;
    do {
      operands.push_back(sum());
    } while (scan_.accept(","));
    scan_.expect(")");
    return SymExprBuilder::make(word == "max" ? Op::max : Op::min, operands);
  }

  Scanner scan_;
  SymbolTable& symbols_;
};

}  // namespace

/// Infix text from the code. Operands of everything but sums are put in parentheses unless they are atoms.
class SymExprPrinter {
 public:
  explicit SymExprPrinter(const SymbolTable& symbols) : symbols_(symbols) {}

  std::string print(const SymExpr& expr) {
    if (expr.is_constant()) return std::to_string(expr.constant_);
    std::vector<Piece> stack;
    for (const SymExpr::Item& item : expr.code_) {
      std::size_t count = 0;
      Piece piece = leaf(item);
      if (piece.text.empty()) {
        count = static_cast<std::size_t>(item.n);
        piece = compose(item.op, {stack.end() - static_cast<std::ptrdiff_t>(count), stack.end()});
      }
      stack.resize(stack.size() - count);
      stack.push_back(std::move(piece));
    }
    return stack.back().text;
  }

 private:
  using Op = SymExpr::Op;

  struct Piece {
    std::string text;
    bool atom = true;
    std::string magnitude = {};  // of a negative product or number: its text without the sign
    bool number = false;
  };

  Piece leaf(const SymExpr::Item& item) const {
    switch (item.op) {
      case Op::integer:
        return number(item.n);
      case Op::symbol: {
        const std::string& name = symbols_.name(static_cast<SymbolId>(item.n));
        const bool plain =
            is_plain_name(name) && name.find('.') == std::string::npos && name != "max" && name != "min";
        return {plain ? name : escaped(name, '`')};
      }
      case Op::unknown:
        return {"?"};
      default:
        return {};
    }
  }

  static Piece number(std::int64_t n) {
    std::string text = std::to_string(n);
    std::string magnitude = n < 0 && n != INT64_MIN ? text.substr(1) : std::string();
    return {std::move(text), n >= 0, std::move(magnitude), true};
  }

  static std::string wrap(const Piece& piece) { return piece.atom ? piece.text : "(" + piece.text + ")"; }

  static Piece compose(Op op, const std::vector<Piece>& operands) {
    switch (op) {
      case Op::add:
        return sum(operands);
      case Op::mul:
        return product(operands);
      case Op::max:
        return call("max", operands);
      case Op::min:
        return call("min", operands);
      case Op::pow:
        return {wrap(operands[0]) + "**" + wrap(operands[1]), false};
      case Op::floor_div:
        return {wrap(operands[0]) + "//" + wrap(operands[1]), false};
      default:
        return {wrap(operands[0]) + " % " + wrap(operands[1]), false};
    }
  }

  static Piece sum(const std::vector<Piece>& operands) {
    std::string text = operands[0].text;
    for (std::size_t i = 1; i < operands.size(); ++i) {
      text += operands[i].magnitude.empty() ? " + " + operands[i].text : " - " + operands[i].magnitude;
    }
    return {std::move(text), false};
  }

  /// The number, last in the code, is written first.
  static Piece product(const std::vector<Piece>& operands) {
    const Piece& last = operands.back();
    std::string rest;
    for (std::size_t i = 0; i + (last.number ? 1 : 0) < operands.size(); ++i) {
      rest += (i == 0 ? "" : "*") + wrap(operands[i]);
    }
    if (!last.number) return {std::move(rest), false};
    std::string magnitude;
    if (!last.magnitude.empty()) magnitude = last.magnitude == "1" ? rest : last.magnitude + "*" + rest;
    std::string text = magnitude.empty() ? last.text + "*" + rest : "-" + magnitude;
    return {std::move(text), false, std::move(magnitude)};
  }

  static Piece call(const char* name, const std::vector<Piece>& operands) {
    std::string text = std::string(name) + "(";
    for (std::size_t i = 0; i < operands.size(); ++i) text += (i == 0 ? "" : ", ") + operands[i].text;
    return {text + ")"};
  }

  const SymbolTable& symbols_;
};

SymExpr SymExpr::parse(std::string_view text, SymbolTable& symbols) {
  return CallParser(text, symbols).parse();
}

SymExpr SymExpr::parse_infix(std::string_view text, SymbolTable& symbols) {
  return InfixParser(text, symbols).parse();
}

std::string SymExpr::to_string(const SymbolTable& symbols) const {
  return SymExprPrinter(symbols).print(*this);
}

}  // namespace lowtide::graph
