#include "graph/sym_expr.hpp"

#include <algorithm>
#include <span>

#include "base/checked_math.hpp"
#include "graph/sym_expr_builder.hpp"

namespace lowtide::graph {
namespace {

using Int = std::int64_t;
using MaybeInt = std::optional<Int>;

/// Python's //, rounding towards minus infinity.
MaybeInt floor_divide(Int a, Int b) {
  if (b == 0 || (a == INT64_MIN && b == -1)) return std::nullopt;
  const Int quotient = a / b;
  return quotient - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

/// Python's %, with the sign of the divisor.
MaybeInt modulo(Int a, Int b) {
  if (b == 0) return std::nullopt;
  if (b == -1) return 0;
  const Int rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

MaybeInt power(Int base, Int exponent) {
  if (base == 1 || exponent == 0) return 1;
  if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  if (exponent < 0) return std::nullopt;  // a fraction
  if (base == 0) return 0;
  if (exponent > 63) return std::nullopt;
  MaybeInt result = 1;
  for (Int i = 0; i < exponent && result; ++i) result = checked_mul(*result, base);
  return result;
}

}  // namespace

SymbolId SymbolTable::intern(std::string_view name) {
  const auto [it, added] = index_.try_emplace(std::string(name), static_cast<SymbolId>(names_.size()));
  if (added) names_.push_back(it->first);
  return it->second;
}

SymExpr SymExpr::symbol(SymbolId id) {
  SymExpr expr;
  expr.code_.push_back({Op::symbol, id});
  return expr;
}

/// Runs the code on a stack of Domain::Value: numbers, intervals or linear forms.
template <class Domain>
std::optional<typename Domain::Value> SymExpr::fold(const Domain& domain) const {
  using Value = typename Domain::Value;
  if (is_constant()) return domain.integer(constant_);
  std::vector<Value> stack;
  stack.reserve(code_.size());
  for (const Item& item : code_) {
    std::optional<Value> result;
    if (item.op == Op::integer) {
      result = domain.integer(item.n);
    } else if (item.op == Op::symbol) {
      result = domain.symbol(static_cast<SymbolId>(item.n));
    } else if (item.op != Op::unknown) {
      const auto count = static_cast<std::size_t>(item.n);
      const std::span<const Value> operands(stack.data() + (stack.size() - count), count);
      result = operands[0];
      for (std::size_t i = 1; i < count && result; ++i) {
        const Value& right = operands[i];
        switch (item.op) {
          case Op::add:
            result = domain.add(*result, right);
            break;
          case Op::mul:
            result = domain.mul(*result, right);
            break;
          case Op::pow:
            result = domain.pow(*result, right);
            break;
          case Op::floor_div:
            result = domain.floor_div(*result, right);
            break;
          case Op::mod:
            result = domain.mod(*result, right);
            break;
          case Op::max:
            result = domain.max(*result, right);
            break;
          case Op::min:
            result = domain.min(*result, right);
            break;
          default:
            result.reset();
            break;
        }
      }
      stack.erase(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
    }
    if (!result) return std::nullopt;
    stack.push_back(*result);
  }
  return stack.back();
}

namespace {

/// Plain numbers.
struct NumberDomain {
  using Value = Int;
  const SymbolValues& values;

  MaybeInt integer(Int n) const { return n; }
  MaybeInt symbol(SymbolId id) const { return id < values.size() ? values[id] : std::nullopt; }
  MaybeInt add(Int a, Int b) const { return checked_add(a, b); }
  MaybeInt mul(Int a, Int b) const { return checked_mul(a, b); }
  MaybeInt pow(Int a, Int b) const { return power(a, b); }
  MaybeInt floor_div(Int a, Int b) const { return floor_divide(a, b); }
  MaybeInt mod(Int a, Int b) const { return modulo(a, b); }
  MaybeInt max(Int a, Int b) const { return std::max(a, b); }
  MaybeInt min(Int a, Int b) const { return std::min(a, b); }
};

struct Interval {
  Int low;
  Int high;
};

/// Interval arithmetic: sound for every expression, tight for the monotonic ones that sizes are.
struct IntervalDomain {
  using Value = Interval;
  using Maybe = std::optional<Interval>;
  const SymbolValues& low;
  const SymbolValues& high;

  /// Bounds of a function that is monotonic in each argument: among its values at the corners.
  template <class Function>
  static Maybe corners(Interval a, Interval b, Function function) {
    Maybe hull;
    for (const Int x : {a.low, a.high}) {
      for (const Int y : {b.low, b.high}) {
        const MaybeInt value = function(x, y);
        if (!value) return std::nullopt;
        hull = hull ? Interval{std::min(hull->low, *value), std::max(hull->high, *value)}
                    : Interval{*value, *value};
      }
    }
    return hull;
  }

  Maybe integer(Int n) const { return Interval{n, n}; }
  Maybe symbol(SymbolId id) const {
    if (id >= low.size() || id >= high.size() || !low[id] || !high[id] || *low[id] > *high[id])
      return std::nullopt;
    return Interval{*low[id], *high[id]};
  }
  Maybe add(Interval a, Interval b) const { return corners(a, b, checked_add<Int>); }
  Maybe mul(Interval a, Interval b) const { return corners(a, b, checked_mul<Int>); }
  Maybe pow(Interval a, Interval b) const {
    if (a.low < 1 || b.low < 0)
      return a.low == a.high && b.low == b.high ? corners(a, b, power) : std::nullopt;
    return corners(a, b, power);
  }
  Maybe floor_div(Interval a, Interval b) const {
    if (b.low <= 0 && b.high >= 0) return std::nullopt;
    return corners(a, b, floor_divide);
  }
  Maybe mod(Interval a, Interval b) const {
    if (b.low <= 0) return std::nullopt;
    if (a.low == a.high && b.low == b.high) return corners(a, b, modulo);
    const Int largest = b.high - 1;
    return Interval{0, a.low >= 0 ? std::min(largest, a.high) : largest};
  }
  Maybe max(Interval a, Interval b) const {
    return Interval{std::max(a.low, b.low), std::max(a.high, b.high)};
  }
  Maybe min(Interval a, Interval b) const {
    return Interval{std::min(a.low, b.low), std::min(a.high, b.high)};
  }
};

/// factor * x + offset, for the one unknown x.
struct Linear {
  Int factor = 0;
  Int offset = 0;
};

struct LinearDomain {
  using Value = Linear;
  using Maybe = std::optional<Linear>;
  const SymbolValues& values;
  SymbolId unknown;

  Maybe integer(Int n) const { return Linear{0, n}; }
  Maybe symbol(SymbolId id) const {
    if (id == unknown) return Linear{1, 0};
    return id < values.size() && values[id] ? Maybe(Linear{0, *values[id]}) : std::nullopt;
  }
  Maybe add(Linear a, Linear b) const {
    const MaybeInt factor = checked_add(a.factor, b.factor), offset = checked_add(a.offset, b.offset);
    return factor && offset ? Maybe(Linear{*factor, *offset}) : std::nullopt;
  }
  Maybe mul(Linear a, Linear b) const {
    if (a.factor != 0 && b.factor != 0) return std::nullopt;
    if (a.factor != 0) std::swap(a, b);  // a is a number now
    const MaybeInt factor = checked_mul(a.offset, b.factor), offset = checked_mul(a.offset, b.offset);
    return factor && offset ? Maybe(Linear{*factor, *offset}) : std::nullopt;
  }
  template <class Function>
  static Maybe numbers(Linear a, Linear b, Function function) {
    if (a.factor != 0 || b.factor != 0) return std::nullopt;
    const MaybeInt value = function(a.offset, b.offset);
    return value ? Maybe(Linear{0, *value}) : std::nullopt;
  }
  Maybe pow(Linear a, Linear b) const {
    if (b.factor == 0 && b.offset == 1) return a;
    return numbers(a, b, power);
  }
  Maybe floor_div(Linear a, Linear b) const {
    if (b.factor == 0 && b.offset == 1) return a;
    return numbers(a, b, floor_divide);
  }
  Maybe mod(Linear a, Linear b) const { return numbers(a, b, modulo); }
  Maybe max(Linear a, Linear b) const {
    return numbers(a, b, [](Int x, Int y) { return MaybeInt(std::max(x, y)); });
  }
  Maybe min(Linear a, Linear b) const {
    return numbers(a, b, [](Int x, Int y) { return MaybeInt(std::min(x, y)); });
  }
};

}  // namespace

std::optional<std::int64_t> SymExpr::evaluate(const SymbolValues& values) const {
  if (is_constant()) return constant_;
  return fold(NumberDomain{values});
}

std::optional<std::int64_t> SymExpr::upper_bound(const SymbolValues& low, const SymbolValues& high) const {
  const std::optional<Interval> interval = fold(IntervalDomain{low, high});
  return interval ? MaybeInt(interval->high) : std::nullopt;
}

std::optional<SymbolId> SymExpr::as_symbol() const {
  if (code_.size() != 1 || code_[0].op != Op::symbol) return std::nullopt;
  return static_cast<SymbolId>(code_[0].n);
}

std::vector<SymbolId> SymExpr::symbols() const {
  std::vector<SymbolId> found;
  for (const Item& item : code_) {
    const auto id = static_cast<SymbolId>(item.n);
    if (item.op == Op::symbol && std::find(found.begin(), found.end(), id) == found.end())
      found.push_back(id);
  }
  return found;
}

std::optional<std::pair<SymbolId, std::int64_t>> SymExpr::solve(std::int64_t value,
                                                                const SymbolValues& values) const {
  std::optional<SymbolId> unknown;
  for (const SymbolId id : symbols()) {
    if (id < values.size() && values[id]) continue;
    if (unknown) return std::nullopt;
    unknown = id;
  }
  if (!unknown) return std::nullopt;
  const std::optional<Linear> form = fold(LinearDomain{values, *unknown});
  if (!form || form->factor == 0) return std::nullopt;
  Int difference = 0;
  if (__builtin_sub_overflow(value, form->offset, &difference)) return std::nullopt;
  if (modulo(difference, form->factor) != 0) return std::nullopt;
  const MaybeInt solution = floor_divide(difference, form->factor);
  return solution ? std::optional(std::pair(*unknown, *solution)) : std::nullopt;
}

SymExpr SymExprBuilder::unknown() {
  SymExpr expr;
  expr.code_.push_back({Op::unknown, 0});
  return expr;
}

SymExpr SymExprBuilder::make(Op op, const std::vector<SymExpr>& operands) {
  for (const SymExpr& operand : operands) {
    if (is_unknown(operand)) return unknown();
  }
  if (op == Op::add || op == Op::mul) return make_flat(op, operands);
  if (operands.size() == 1) return operands[0];
  SymExpr expr;
  bool constant = true;
  for (const SymExpr& operand : operands) {
    append(expr.code_, operand);
    constant = constant && operand.is_constant();
  }
  expr.code_.push_back({op, static_cast<std::int64_t>(operands.size())});
  if (!constant) return expr;
  const auto value = expr.evaluate({});
  return value ? SymExpr(*value) : unknown();
}

bool SymExprBuilder::is_unknown(const SymExpr& expr) {
  return !expr.code_.empty() && expr.code_[0].op == Op::unknown;
}

void SymExprBuilder::append(std::vector<Item>& code, const SymExpr& expr) {
  if (expr.is_constant()) {
    code.push_back({Op::integer, expr.constant_});
  } else {
    code.insert(code.end(), expr.code_.begin(), expr.code_.end());
  }
}

SymExpr SymExprBuilder::make_flat(Op op, const std::vector<SymExpr>& operands) {
  const std::int64_t neutral = op == Op::mul ? 1 : 0;
  std::optional<std::int64_t> constant = neutral;
  const auto combine = [&](std::int64_t n) {
    if (constant) constant = op == Op::mul ? checked_mul(*constant, n) : checked_add(*constant, n);
  };
  SymExpr expr;
  std::int64_t count = 0;
  for (const SymExpr& operand : operands) {
    if (operand.is_constant()) {
      combine(operand.constant_);
      continue;
    }
    append(expr.code_, operand);
    if (operand.code_.back().op != op) {
      ++count;
      continue;
    }
    count += operand.code_.back().n;  // its operands become ours
    expr.code_.pop_back();
    if (expr.code_.back().op == Op::integer) {
      combine(expr.code_.back().n);
      expr.code_.pop_back();
      --count;
    }
  }
  if (!constant) return unknown();
  if (count == 0 || (op == Op::mul && *constant == 0)) return SymExpr(*constant);
  if (*constant != neutral) {
    expr.code_.push_back({Op::integer, *constant});
    ++count;
  }
  if (count > 1) expr.code_.push_back({op, count});
  return expr;
}

SymExpr SymExpr::product(const SymExpr& a, const SymExpr& b) {
  return SymExprBuilder::make(Op::mul, {a, b});
}

}  // namespace lowtide::graph
