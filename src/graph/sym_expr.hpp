// Size expressions recorded by torch.export, as text such as
//   Mul(Integer(2), Symbol('s77', positive=True, integer=True))
// parsed once and evaluated from the sizes of the real inputs.
//
// Supported words: Integer, Symbol, Add, Mul, Pow, FloorDiv, Mod, Max, Min (with the spellings PythonMod,
// CleanDiv, CeilToInt variants that sympy prints). Anything else parses to an expression that is never known.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lowtide::graph {

/// Index of a symbol in its graph's SymbolTable.
using SymbolId = std::uint32_t;

/// Names of symbols, shared by all expressions of one program.
class SymbolTable {
 public:
  SymbolId intern(std::string_view name);
  const std::string& name(SymbolId id) const { return names_[id]; }
  std::size_t size() const { return names_.size(); }

 private:
  std::vector<std::string> names_;
  std::unordered_map<std::string, SymbolId> index_;
};

/// Value per symbol; nothing where it is not known (yet).
using SymbolValues = std::vector<std::optional<std::int64_t>>;

/// An integer expression over symbols. Immutable and cheap to copy. Thread-safe to evaluate.
class SymExpr {
 public:
  /// The constant 0.
  SymExpr() = default;
  /// A constant.
  SymExpr(std::int64_t constant) : constant_(constant) {}  // NOLINT: sizes are mostly plain numbers
  /// A single symbol.
  static SymExpr symbol(SymbolId id);

  /// Parses the recorded text. Never throws on unknown words (the result is then `unknown`); throws
  /// ArchiveError on text that is malformed or nested deeper than 200 levels.
  static SymExpr parse(std::string_view text, SymbolTable& symbols);

  /// Parses what to_string writes: "2*s77 + 1", "max(1, (s0 - 1)//4)", "?" for an unknown expression. Throws
  /// ArchiveError.
  static SymExpr parse_infix(std::string_view text, SymbolTable& symbols);

  /// The product, simplified where both are constants. Unknown when constants overflow.
  static SymExpr product(const SymExpr& a, const SymExpr& b);

  /// The value, or nothing when a symbol is unknown, a word is unsupported, a division has no integer result
  /// or the arithmetic leaves 64 bit.
  std::optional<std::int64_t> evaluate(const SymbolValues& values) const;

  /// An upper bound of the value when each symbol lies in [low, high], for symbols that are not known
  /// exactly. Nothing when a symbol has no bounds or none can be proved.
  std::optional<std::int64_t> upper_bound(const SymbolValues& low, const SymbolValues& high) const;

  bool is_constant() const { return code_.empty(); }
  /// The constant's value; only meaningful when is_constant().
  std::int64_t constant() const { return constant_; }
  /// Set when the expression is one bare symbol.
  std::optional<SymbolId> as_symbol() const;
  /// The symbols that occur, each once.
  std::vector<SymbolId> symbols() const;
  /// Solves "this == value" for the one symbol that `values` does not know yet, when the expression is linear
  /// in it and the solution is an integer.
  std::optional<std::pair<SymbolId, std::int64_t>> solve(std::int64_t value,
                                                         const SymbolValues& values) const;
  /// Infix text for people: "2*s77 + 1".
  std::string to_string(const SymbolTable& symbols) const;

 private:
  enum class Op : std::uint8_t { integer, symbol, add, mul, pow, floor_div, mod, max, min, unknown };
  struct Item {  // reverse Polish: operands first; `n` is the operand count, or the value, or the symbol
    Op op;
    std::int64_t n;
  };
  friend class SymExprBuilder;
  friend class SymExprPrinter;

  template <class Domain>
  std::optional<typename Domain::Value> fold(const Domain& domain) const;

  std::int64_t constant_ = 0;
  std::vector<Item> code_;  // empty for constants
};

}  // namespace lowtide::graph
