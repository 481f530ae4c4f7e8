// Evaluating guards: Python's arithmetic on 64-bit integers, floats and booleans, without Python.
#include "graph/guard.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "graph/guard_functions.hpp"

namespace lowtide::graph {

/// What Python would have, or raise. Exceptions are values, so that `and`, `or` and chains meet them only
/// where Python would.
struct Guard::Value {
  enum class Kind : std::uint8_t { integer, real, boolean, raised, unknown };
  Kind kind = Kind::unknown;
  std::int64_t n = 0;
  double x = 0;

  static Value integer(std::int64_t n) { return {Kind::integer, n, 0}; }
  static Value real(double x) { return {Kind::real, 0, x}; }
  static Value boolean(bool b) { return {Kind::boolean, b ? 1 : 0, 0}; }
  static Value raised() { return {Kind::raised, 0, 0}; }
  static Value unknown() { return {}; }

  bool known() const { return kind != Kind::raised && kind != Kind::unknown; }
  bool is_real() const { return kind == Kind::real; }
  double as_real() const { return is_real() ? x : static_cast<double>(n); }
  bool truth() const { return is_real() ? x != 0 : n != 0; }
};

struct Guard::Arithmetic {
  /// Integers compare with floats exactly, which needs more digits than a double has.
  static std::partial_ordering order(const Value& a, const Value& b) {
    if (!a.is_real() && !b.is_real()) return a.n <=> b.n;
    const auto wide = [](const Value& v) {
      return v.is_real() ? static_cast<long double>(v.x) : static_cast<long double>(v.n);
    };
    return wide(a) <=> wide(b);
  }

  static bool compare(Op op, const Value& a, const Value& b) {
    const std::partial_ordering ordering = order(a, b);
    switch (op) {
      case Op::equal:
        return ordering == 0;
      case Op::not_equal:
        return ordering != 0;
      case Op::less:
        return ordering < 0;
      case Op::less_equal:
        return ordering <= 0;
      case Op::greater:
        return ordering > 0;
      default:
        return ordering >= 0;
    }
  }

  static Value rounded(double x) {
    if (!(x >= -0x1p63 && x < 0x1p63)) return std::isfinite(x) ? Value::unknown() : Value::raised();
    return Value::integer(static_cast<std::int64_t>(x));
  }

  static Value unary(const Item& item, const Value& a) {
    if (!a.known()) return a;
    switch (item.op) {
      case Op::negate:
        if (a.is_real()) return Value::real(-a.x);
        return a.n == INT64_MIN ? Value::unknown() : Value::integer(-a.n);
      case Op::invert_truth:
        return Value::boolean(!a.truth());
      case Op::absolute:
        if (a.is_real()) return Value::real(std::fabs(a.x));
        return a.n == INT64_MIN ? Value::unknown() : Value::integer(std::abs(a.n));
      case Op::round_down:
        return a.is_real() ? rounded(std::floor(a.x)) : Value::integer(a.n);
      case Op::round_up:
        return a.is_real() ? rounded(std::ceil(a.x)) : Value::integer(a.n);
      case Op::truncate:
        return a.is_real() ? rounded(std::trunc(a.x)) : Value::integer(a.n);
      case Op::round_even: {
        if (!a.is_real()) return Value::integer(a.n);
        const double down = std::floor(a.x), rest = a.x - down;
        const bool up = rest > 0.5 || (rest == 0.5 && std::fmod(down, 2) != 0);
        return rounded(up ? down + 1 : down);
      }
      case Op::to_real:
        return Value::real(a.as_real());
      default: {
        const double x = a.as_real();
        const double result = kGuardFunctions[static_cast<std::size_t>(item.n)].call(x);
        // Python raises for what is outside of the function's domain, and for overflow.
        return std::isfinite(x) && !std::isfinite(result) ? Value::raised() : Value::real(result);
      }
    }
  }

  static Value binary(Op op, const Value& a, const Value& b) {
    if (op == Op::logical_and) return !a.known() || !a.truth() ? a : b;
    if (op == Op::logical_or) return !a.known() || a.truth() ? a : b;
    if (!a.known()) return a;
    if (!b.known()) return b;
    if (op >= Op::equal && op <= Op::greater_equal) return Value::boolean(compare(op, a, b));
    if (op == Op::minimum) return compare(Op::less, b, a) ? b : a;
    if (op == Op::maximum) return compare(Op::greater, b, a) ? b : a;
    if (op == Op::divide) return b.as_real() == 0 ? Value::raised() : Value::real(a.as_real() / b.as_real());
    return a.is_real() || b.is_real() ? reals(op, a.as_real(), b.as_real()) : integers(op, a.n, b.n);
  }

  static Value integers(Op op, std::int64_t a, std::int64_t b) {
    std::int64_t n = 0;
    switch (op) {
      case Op::add:
        return __builtin_add_overflow(a, b, &n) ? Value::unknown() : Value::integer(n);
      case Op::subtract:
        return __builtin_sub_overflow(a, b, &n) ? Value::unknown() : Value::integer(n);
      case Op::multiply:
        return __builtin_mul_overflow(a, b, &n) ? Value::unknown() : Value::integer(n);
      case Op::floor_divide:
      case Op::modulo: {
        if (b == 0) return Value::raised();
        if (b == -1) return op == Op::modulo ? Value::integer(0) : integers(Op::subtract, 0, a);
        const std::int64_t rest = a % b;
        const bool borrow = rest != 0 && (rest < 0) != (b < 0);
        if (op == Op::modulo) return Value::integer(borrow ? rest + b : rest);
        return Value::integer(a / b - (borrow ? 1 : 0));
      }
      case Op::power:
        return integer_power(a, b);
      case Op::bit_and:
        return Value::integer(a & b);
      case Op::bit_or:
        return Value::integer(a | b);
      case Op::bit_xor:
        return Value::integer(a ^ b);
      case Op::shift_left:
        if (b < 0) return Value::raised();
        if (a == 0) return Value::integer(0);
        return b > 62 ? Value::unknown() : integers(Op::multiply, a, std::int64_t{1} << b);
      default:  // shift_right
        if (b < 0) return Value::raised();
        return Value::integer(a >> std::min<std::int64_t>(b, 63));
    }
  }

  static Value integer_power(std::int64_t base, std::int64_t exponent) {
    if (exponent < 0) return reals(Op::power, static_cast<double>(base), static_cast<double>(exponent));
    std::int64_t result = 1;
    // Any base but these leaves 64 bit after 63 factors.
    if (base == 0 || base == 1) return Value::integer(exponent == 0 ? 1 : base);
    if (base == -1) return Value::integer(exponent % 2 == 0 ? 1 : -1);
    if (exponent > 63) return Value::unknown();
    for (; exponent > 0; --exponent) {
      if (__builtin_mul_overflow(result, base, &result)) return Value::unknown();
    }
    return Value::integer(result);
  }

  static Value reals(Op op, double a, double b) {
    switch (op) {
      case Op::add:
        return Value::real(a + b);
      case Op::subtract:
        return Value::real(a - b);
      case Op::multiply:
        return Value::real(a * b);
      case Op::floor_divide:
      case Op::modulo: {
        if (b == 0) return Value::raised();
        double rest = std::fmod(a, b);
        double quotient = (a - rest) / b;
        if (rest != 0 && (rest < 0) != (b < 0)) {
          rest += b;
          quotient -= 1;
        }
        return Value::real(op == Op::modulo ? rest : std::round(quotient));
      }
      case Op::power: {
        if (a == 0 && b < 0) return Value::raised();
        const double result = std::pow(a, b);
        const bool finite = std::isfinite(a) && std::isfinite(b);
        return finite && !std::isfinite(result) ? Value::unknown() : Value::real(result);
      }
      default:
        return Value::raised();  // bits of a float
    }
  }

  static Value choose(const Value& then, const Value& condition, const Value& otherwise) {
    if (!condition.known()) return condition;
    return condition.truth() ? then : otherwise;
  }

  /// a < b <= c: true as far as every pair is.
  static Value chain(std::int64_t packed, const Value* operands) {
    const auto joins = static_cast<std::size_t>(packed & 15);
    for (std::size_t i = 0; i < joins; ++i) {
      packed >>= 4;
      const auto op = static_cast<Op>(static_cast<std::int64_t>(Op::equal) + (packed & 15));
      const Value pair = binary(op, operands[i], operands[i + 1]);
      if (!pair.known() || !pair.truth()) return pair;
    }
    return Value::boolean(true);
  }
};

Guard::Value Guard::run(std::span<const std::optional<std::int64_t>> values) const {
  std::vector<Value> stack;
  stack.reserve(16);
  // Takes `count` operands off the stack and returns where they begin; they stay readable until the next
  // push.
  const auto take = [&](std::size_t count) { return stack.size() - count; };
  for (const Item& item : code_) {
    std::size_t base = stack.size();
    Value result;
    switch (item.op) {
      case Op::integer:
        result = Value::integer(item.n);
        break;
      case Op::boolean:
        result = Value::boolean(item.n != 0);
        break;
      case Op::real:
        result = Value::real(item.x);
        break;
      case Op::place: {
        const auto& value = values[static_cast<std::size_t>(item.n)];
        if (value) result = Value::integer(*value);
        break;
      }
      case Op::choose:
        base = take(3);
        result = Arithmetic::choose(stack[base], stack[base + 1], stack[base + 2]);
        break;
      case Op::chain:
        base = take(static_cast<std::size_t>(item.n & 15) + 1);
        result = Arithmetic::chain(item.n, &stack[base]);
        break;
      default:
        if (item.op >= Op::add) {
          base = take(2);
          result = Arithmetic::binary(item.op, stack[base], stack[base + 1]);
        } else {
          base = take(1);
          result = Arithmetic::unary(item, stack[base]);
        }
    }
    stack.resize(base);
    stack.push_back(result);
  }
  return stack.back();
}

GuardVerdict Guard::evaluate(std::span<const std::optional<std::int64_t>> values) const {
  if (!evaluated() || code_.empty() || values.size() < places_.size()) return GuardVerdict::undecided;
  const Value result = run(values);
  if (result.kind == Value::Kind::unknown) return GuardVerdict::undecided;
  if (result.kind == Value::Kind::raised) return GuardVerdict::divides_by_zero;
  return result.truth() ? GuardVerdict::holds : GuardVerdict::fails;
}

std::vector<std::int64_t> Guard::integers() const {
  std::vector<std::int64_t> found;
  for (const Item& item : code_) {
    if (item.op == Op::integer) found.push_back(item.n);
  }
  return found;
}

std::optional<std::string> Guard::in_words(const std::string& other) const {
  const auto is = [&](std::size_t i, Op op) { return code_[i].op == op; };
  const auto number = [&](std::size_t i) { return std::to_string(code_[i].n); };
  // place % k == r
  if (code_.size() == 5 && is(0, Op::place) && is(1, Op::integer) && is(2, Op::modulo) &&
      is(3, Op::integer)) {
    const std::string divided = code_[3].n == 0 ? "divisible by " + number(1) : "";
    if (is(4, Op::equal))
      return "is " + (divided.empty() ? number(3) + " more than a multiple of " + number(1) : divided);
    if (is(4, Op::not_equal) && !divided.empty()) return "is not " + divided;
    return std::nullopt;
  }
  if (code_.size() != 3) return std::nullopt;
  Op op = code_[2].op;
  const bool flipped = is(0, Op::integer);
  if (!is(flipped ? 1 : 0, Op::place) || (!is(1, Op::integer) && !is(1, Op::place))) return std::nullopt;
  if (code_[flipped ? 1 : 0].n != 0) return std::nullopt;
  if (!flipped && is(1, Op::place) && code_[1].n != 1) return std::nullopt;
  if (flipped) {
    op = op == Op::less            ? Op::greater
         : op == Op::less_equal    ? Op::greater_equal
         : op == Op::greater       ? Op::less
         : op == Op::greater_equal ? Op::less_equal
                                   : op;
  }
  const std::string bound = flipped ? number(0) : is(1, Op::integer) ? number(1) : other;
  switch (op) {
    case Op::equal:
      return "equals " + bound;
    case Op::not_equal:
      return "is not " + bound;
    case Op::less:
      return "is less than " + bound;
    case Op::less_equal:
      return "is at most " + bound;
    case Op::greater:
      return "is more than " + bound;
    case Op::greater_equal:
      return "is at least " + bound;
    default:
      return std::nullopt;
  }
}

}  // namespace lowtide::graph
