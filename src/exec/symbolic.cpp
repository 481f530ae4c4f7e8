#include "exec/symbolic.hpp"

#include <cmath>
#include <string_view>
#include <unordered_map>

#include "base/checked_math.hpp"
#include "lowtide/error.hpp"

namespace lowtide::exec {
namespace {

using c10::IValue;

const std::unordered_map<std::string_view, SymbolicOp> kByTarget{
    {"_operator.add", SymbolicOp::add},
    {"_operator.sub", SymbolicOp::sub},
    {"_operator.mul", SymbolicOp::mul},
    {"_operator.floordiv", SymbolicOp::floor_div},
    {"_operator.truediv", SymbolicOp::true_div},
    {"_operator.mod", SymbolicOp::mod},
    {"_operator.pow", SymbolicOp::pow},
    {"_operator.neg", SymbolicOp::neg},
    {"_operator.pos", SymbolicOp::pos},
    {"_operator.abs", SymbolicOp::abs},
    {"_operator.eq", SymbolicOp::eq},
    {"_operator.ne", SymbolicOp::ne},
    {"_operator.lt", SymbolicOp::lt},
    {"_operator.le", SymbolicOp::le},
    {"_operator.gt", SymbolicOp::gt},
    {"_operator.ge", SymbolicOp::ge},
    {"_operator.and_", SymbolicOp::logical_and},
    {"_operator.or_", SymbolicOp::logical_or},
    {"_operator.not_", SymbolicOp::logical_not},
    {"torch.sym_not", SymbolicOp::logical_not},
    {"torch.sym_min", SymbolicOp::min},
    {"torch.sym_max", SymbolicOp::max},
    {"torch.sym_sum", SymbolicOp::sum},
    {"torch.sym_ite", SymbolicOp::ite},
    {"torch.sym_int", SymbolicOp::to_int},
    {"torch.sym_float", SymbolicOp::to_float},
    {"torch._sym_sqrt", SymbolicOp::sqrt},
    {"math.sqrt", SymbolicOp::sqrt},
    {"math.floor", SymbolicOp::floor},
    {"math.ceil", SymbolicOp::ceil},
    {"math.trunc", SymbolicOp::trunc},
    {"_operator.round", SymbolicOp::round},
    {"round", SymbolicOp::round},
    {"torch.ops.aten.sym_size.int", SymbolicOp::sym_size},
    {"torch.ops.aten.sym_stride.int", SymbolicOp::sym_stride},
    {"torch.ops.aten.sym_numel.default", SymbolicOp::sym_numel},
    {"torch.ops.aten.sym_storage_offset.default", SymbolicOp::sym_storage_offset},
    {"torch.ops.aten._assert_scalar.default", SymbolicOp::assert_scalar},
};

double as_double(const IValue& v) {
  if (v.isDouble()) return v.toDouble();
  if (v.isBool()) return v.toBool() ? 1 : 0;
  return static_cast<double>(v.toInt());
}

std::int64_t as_int(const IValue& v) {
  if (v.isBool()) return v.toBool() ? 1 : 0;
  return v.toInt();
}

bool as_bool(const IValue& v) {
  if (v.isBool()) return v.toBool();
  return v.isDouble() ? v.toDouble() != 0 : v.toInt() != 0;
}

std::int64_t checked(std::optional<std::int64_t> result) {
  if (!result) throw Error("a size expression left the range of 64-bit integers");
  return *result;
}

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  if (b == 0) throw Error("a size expression divides by zero");
  if (b == -1) return checked(checked_mul(a, b));
  const std::int64_t q = a / b;
  return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}

std::int64_t integer_power(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  for (std::int64_t i = 0; i < exponent; ++i) {
    result = checked(checked_mul(result, base));
    if (result == 0 || (result == 1 && base == 1)) break;
    if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  }
  return result;
}

/// Comparisons and choices, alike for integers and floats.
template <class T>
IValue order(SymbolicOp op, T a, T b) {
  switch (op) {
    case SymbolicOp::min:
      return std::min(a, b);
    case SymbolicOp::max:
      return std::max(a, b);
    case SymbolicOp::eq:
      return a == b;
    case SymbolicOp::ne:
      return a != b;
    case SymbolicOp::lt:
      return a < b;
    case SymbolicOp::le:
      return a <= b;
    case SymbolicOp::gt:
      return a > b;
    case SymbolicOp::ge:
      return a >= b;
    default:
      throw Error("internal: not a binary operation");
  }
}

IValue integer_binary(SymbolicOp op, std::int64_t a, std::int64_t b) {
  switch (op) {
    case SymbolicOp::add:
      return checked(checked_add(a, b));
    case SymbolicOp::sub: {
      std::int64_t r;
      if (__builtin_sub_overflow(a, b, &r)) checked(std::nullopt);
      return r;
    }
    case SymbolicOp::mul:
      return checked(checked_mul(a, b));
    case SymbolicOp::floor_div:
      return floor_divide(a, b);
    case SymbolicOp::mod: {
      if (b == 0) throw Error("a size expression divides by zero");
      if (b == -1) return std::int64_t{0};
      const std::int64_t r = a % b;
      return r != 0 && (r < 0) != (b < 0) ? r + b : r;
    }
    case SymbolicOp::pow:
      return b < 0 ? IValue(std::pow(double(a), double(b))) : IValue(integer_power(a, b));
    default:
      return order(op, a, b);
  }
}

IValue float_binary(SymbolicOp op, double a, double b) {
  switch (op) {
    case SymbolicOp::add:
      return a + b;
    case SymbolicOp::sub:
      return a - b;
    case SymbolicOp::mul:
      return a * b;
    case SymbolicOp::floor_div:
      return std::floor(a / b);
    case SymbolicOp::mod:
      return a - std::floor(a / b) * b;
    case SymbolicOp::pow:
      return std::pow(a, b);
    default:
      return order(op, a, b);
  }
}

IValue binary(SymbolicOp op, const IValue& a, const IValue& b) {
  if (op == SymbolicOp::true_div) {
    if (as_double(b) == 0) throw Error("a size expression divides by zero");
    return as_double(a) / as_double(b);
  }
  if (a.isDouble() || b.isDouble()) return float_binary(op, as_double(a), as_double(b));
  return integer_binary(op, as_int(a), as_int(b));
}

IValue rounded(SymbolicOp op, const IValue& v) {
  if (!v.isDouble()) return as_int(v);
  double d = v.toDouble();
  switch (op) {
    case SymbolicOp::floor:
      d = std::floor(d);
      break;
    case SymbolicOp::ceil:
      d = std::ceil(d);
      break;
    case SymbolicOp::round:
      d = std::nearbyint(d);
      break;
    default:
      d = std::trunc(d);
  }
  if (!(std::abs(d) < 9.2e18)) throw Error("a size expression left the range of 64-bit integers");
  return static_cast<std::int64_t>(d);
}

}  // namespace

std::optional<SymbolicOp> find_symbolic(const graph::Node& node) {
  const auto found = kByTarget.find(node.target);
  if (found == kByTarget.end()) return std::nullopt;
  return found->second;
}

IValue evaluate_symbolic(SymbolicOp op, std::span<const IValue> arguments) {
  const auto arg = [&](std::size_t i) -> const IValue& {
    if (i >= arguments.size()) throw Error("a symbolic operation lacks an argument");
    return arguments[i];
  };
  switch (op) {
    case SymbolicOp::sym_size:
      return arg(0).toTensor().size(arg(1).toInt());
    case SymbolicOp::sym_stride:
      return arg(0).toTensor().stride(arg(1).toInt());
    case SymbolicOp::sym_numel:
      return arg(0).toTensor().numel();
    case SymbolicOp::sym_storage_offset:
      return arg(0).toTensor().storage_offset();
    case SymbolicOp::assert_scalar:
      if (!as_bool(arg(0)))
        throw Error("the model's own check failed: " +
                    (arguments.size() > 1 && arg(1).isString() ? arg(1).toStringRef() : ""));
      return {};
    case SymbolicOp::logical_and:
      return as_bool(arg(0)) && as_bool(arg(1));
    case SymbolicOp::logical_or:
      return as_bool(arg(0)) || as_bool(arg(1));
    case SymbolicOp::logical_not:
      return !as_bool(arg(0));
    case SymbolicOp::neg:
      return arg(0).isDouble() ? IValue(-arg(0).toDouble())
                               : integer_binary(SymbolicOp::sub, 0, as_int(arg(0)));
    case SymbolicOp::pos:
      return arg(0);
    case SymbolicOp::abs:
      return arg(0).isDouble() ? IValue(std::abs(arg(0).toDouble())) : IValue(std::abs(as_int(arg(0))));
    case SymbolicOp::to_float:
      return as_double(arg(0));
    case SymbolicOp::sqrt:
      return std::sqrt(as_double(arg(0)));
    case SymbolicOp::ite:
      return as_bool(arg(0)) ? arg(1) : arg(2);
    case SymbolicOp::sum: {
      IValue total = std::int64_t{0};
      for (const IValue& v : arguments) {
        if (v.isIntList()) {
          for (const std::int64_t item : v.toIntVector()) total = binary(SymbolicOp::add, total, item);
        } else {
          total = binary(SymbolicOp::add, total, v);
        }
      }
      return total;
    }
    case SymbolicOp::to_int:
    case SymbolicOp::floor:
    case SymbolicOp::ceil:
    case SymbolicOp::trunc:
    case SymbolicOp::round:
      return rounded(op, arg(0));
    default:
      return binary(op, arg(0), arg(1));
  }
}

}  // namespace lowtide::exec
