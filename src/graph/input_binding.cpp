#include "graph/input_binding.hpp"

#include <utility>

#include "graph/guard_check.hpp"
#include "graph/quote.hpp"
#include "lowtide/error.hpp"

namespace lowtide::graph {
namespace {

std::vector<const GraphInput*> user_inputs(const Graph& graph) {
  std::vector<const GraphInput*> inputs;
  for (const GraphInput& input : graph.inputs) {
    if (input.kind == InputKind::user || input.kind == InputKind::constant) inputs.push_back(&input);
  }
  return inputs;
}

std::string sizes_text(const std::vector<std::int64_t>& sizes) {
  std::string text = "[";
  for (std::size_t i = 0; i < sizes.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(sizes[i]);
  return text + "]";
}

std::string sizes_text(const std::vector<SymExpr>& sizes, const SymbolTable& symbols) {
  std::string text = "[";
  for (std::size_t i = 0; i < sizes.size(); ++i) text += (i == 0 ? "" : ", ") + sizes[i].to_string(symbols);
  return text + "]";
}

bool is_integer(DType dtype) {
  switch (dtype) {
    case DType::u8:
    case DType::i8:
    case DType::i16:
    case DType::i32:
    case DType::i64:
    case DType::u16:
      return true;
    default:
      return false;
  }
}

bool is_real(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::f32 || dtype == DType::f64;
}

/// One walk over the inputs. Bare symbols are bound first, expressions are solved and checked when all of
/// those are known.
class Binder {
 public:
  Binder(const Program& program, const InputDescriptions& inputs)
      : program_(program),
        inputs_(inputs),
        symbols_(program.symbols.size()),
        bound_by_(program.symbols.size()) {}

  SymbolValues run() {
    const std::vector<const GraphInput*> expected = user_inputs(program_.graph);
    check_count(expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      name_ = i < program_.user_input_names.size() ? program_.user_input_names[i] : std::to_string(i);
      input_ = i;
      bind_input(*expected[i], inputs_[i]);
    }
    solve_expressions();
    check_limits(program_, inputs_, symbols_, order_);
    return std::move(symbols_);
  }

 private:
  /// A size or integer that has to equal an expression of several symbols.
  struct Equation {
    std::string where;
    GuardPlace place;
    const SymExpr* expr;
    std::int64_t value;
  };

  void check_count(std::size_t expected) const {
    if (inputs_.size() == expected) return;
    throw InputError("the model takes " + std::to_string(expected) + " inputs and was given " +
                     std::to_string(inputs_.size()));
  }

  void bind_input(const GraphInput& input, const std::optional<InputDescription>& given) {
    if (input.kind == InputKind::constant) return check_constant(input.constant, given);
    const Value& value = program_.graph.values.at(input.value);
    if (!given)
      throw InputError("input " + in_quotes(name_) + " is missing; the model takes " + expectation(value));
    switch (value.kind) {
      case ValueKind::tensor:
        return bind_tensor(value.meta, *given);
      case ValueKind::sym_int:
        return bind_integer(value, *given);
      case ValueKind::sym_float:
        return check_scalar(*given, is_real(given->dtype) || is_integer(given->dtype), "a float");
      case ValueKind::sym_bool:
        return check_scalar(*given, given->dtype == DType::boolean, "a bool");
      case ValueKind::custom_object:
        throw InputError("input " + in_quotes(name_) + " is a custom object, which cannot be passed");
    }
  }

  std::string expectation(const Value& value) const {
    switch (value.kind) {
      case ValueKind::tensor:
        return std::string(dtype_name(value.meta.dtype)) + " of shape " +
               sizes_text(value.meta.sizes, program_.symbols);
      case ValueKind::sym_int:
        return "an integer (0-d tensor)";
      case ValueKind::sym_float:
        return "a float (0-d tensor)";
      case ValueKind::sym_bool:
        return "a bool (0-d tensor)";
      default:
        return "a custom object";
    }
  }

  void bind_tensor(const TensorMeta& meta, const InputDescription& given) {
    if (meta.dtype != DType::unknown && meta.dtype != given.dtype) {
      throw InputError("input " + in_quotes(name_) + " has dtype " + std::string(dtype_name(given.dtype)) +
                       " where the model takes " + std::string(dtype_name(meta.dtype)));
    }
    const std::string where = "input " + in_quotes(name_) + " has shape " + sizes_text(given.sizes) +
                              " where the model takes " + sizes_text(meta.sizes, program_.symbols) + ": ";
    if (given.sizes.size() != meta.sizes.size()) {
      throw InputError(where + std::to_string(given.sizes.size()) + " dimensions where " +
                       std::to_string(meta.sizes.size()) + " are expected");
    }
    for (std::size_t i = 0; i < given.sizes.size(); ++i) {
      bind(where + "size " + std::to_string(given.sizes[i]) + " at dimension " + std::to_string(i),
           {input_, i}, meta.sizes[i], given.sizes[i]);
    }
  }

  void check_scalar(const InputDescription& given, bool right_dtype, const char* what) const {
    if (right_dtype && given.sizes.empty()) return;
    throw InputError("input " + in_quotes(name_) + " has dtype " + std::string(dtype_name(given.dtype)) +
                     " and shape " + sizes_text(given.sizes) + " where the model takes " + what +
                     " (0-d tensor)");
  }

  void bind_integer(const Value& value, const InputDescription& given) {
    check_scalar(given, is_integer(given.dtype), "an integer");
    if (!given.integer) return;  // known only when the run begins
    bind("input " + in_quotes(name_) + ": " + std::to_string(*given.integer), {input_, std::nullopt},
         value.expr, *given.integer);
  }

  /// An input that was fixed at export may be left out; if it is given, it has to be the same.
  void check_constant(const ConstantInput& constant, const std::optional<InputDescription>& given) const {
    if (!given) return;
    const auto fail = [&](const std::string& expected) {
      throw InputError("input " + in_quotes(name_) + " was fixed as " + expected +
                       " when the model was exported" +
                       (given->integer ? ", " + std::to_string(*given->integer) + " was given" : "") +
                       "; leave it out or export the model with the other value");
    };
    if (std::holds_alternative<None>(constant)) fail("None");
    if (const auto* text = std::get_if<std::string>(&constant)) fail(in_quotes(*text));
    if (const auto* integer = std::get_if<std::int64_t>(&constant)) {
      check_scalar(*given, is_integer(given->dtype), "an integer");
      if (given->integer && *given->integer != *integer) fail(std::to_string(*integer));
    } else if (const auto* flag = std::get_if<bool>(&constant)) {
      check_scalar(*given, given->dtype == DType::boolean, "a bool");
      if (given->integer && (*given->integer != 0) != *flag) fail(*flag ? "True" : "False");
    } else if (std::holds_alternative<double>(constant)) {
      check_scalar(*given, is_real(given->dtype) || is_integer(given->dtype), "a float");
    }
  }

  void bind(std::string where, const GuardPlace& place, const SymExpr& expr, std::int64_t value) {
    if (expr.is_constant()) {
      if (expr.constant() == value) return;
      throw InputError(where + " where " + std::to_string(expr.constant()) + " is expected");
    }
    const std::optional<SymbolId> symbol = expr.as_symbol();
    if (!symbol) {
      equations_.push_back({std::move(where), place, &expr, value});
      return;
    }
    assign(where, place, *symbol, value);
  }

  void assign(const std::string& where, const GuardPlace& place, SymbolId symbol, std::int64_t value) {
    std::optional<std::int64_t>& slot = symbols_.at(symbol);
    if (slot && *slot != value) {
      throw InputError(where + " where " + program_.symbols.name(symbol) + " is " + std::to_string(*slot) +
                       " (from input " + in_quotes(bound_by_[symbol]) + ")");
    }
    if (slot) return;
    bound_by_[symbol] = name_;
    slot = value;
    order_.push_back({symbol, place, where});
  }

  void solve_expressions() {
    for (bool progress = true; std::exchange(progress, false);) {
      for (const Equation& equation : equations_) {
        const auto solution = equation.expr->solve(equation.value, symbols_);
        if (!solution) continue;
        assign(equation.where, equation.place, solution->first, solution->second);
        progress = true;
      }
    }
    for (const Equation& equation : equations_) {
      const auto value = equation.expr->evaluate(symbols_);
      if (value && *value != equation.value) {
        throw InputError(equation.where + " where " + std::to_string(*value) + " is expected");
      }
    }
  }

  const Program& program_;
  const InputDescriptions& inputs_;
  SymbolValues symbols_;
  std::vector<std::string> bound_by_;  // per symbol: the input that told it
  std::vector<Equation> equations_;
  std::vector<BoundSymbol> order_;
  std::string name_;       // of the input at hand
  std::size_t input_ = 0;  // its position
};

std::optional<InputDescription> describe_constant(const ConstantInput& constant) {
  if (const auto* integer = std::get_if<std::int64_t>(&constant))
    return InputDescription{DType::i64, {}, *integer};
  if (const auto* flag = std::get_if<bool>(&constant))
    return InputDescription{DType::boolean, {}, *flag ? 1 : 0};
  if (std::holds_alternative<double>(constant)) return InputDescription{DType::f64, {}, {}};
  return std::nullopt;
}

}  // namespace

SymbolValues bind_inputs(const Program& program, const InputDescriptions& inputs) {
  return Binder(program, inputs).run();
}

std::optional<InputDescriptions> sample_inputs(const Program& program) {
  SymbolValues symbols(program.symbols.size());
  for (const auto& [symbol, hint] : program.hints) symbols.at(symbol) = hint;
  InputDescriptions samples;
  for (const GraphInput* input : user_inputs(program.graph)) {
    if (input->kind == InputKind::constant) {
      samples.push_back(describe_constant(input->constant));
      continue;
    }
    const Value& value = program.graph.values.at(input->value);
    InputDescription sample;
    switch (value.kind) {
      case ValueKind::tensor:
        sample.dtype = value.meta.dtype;
        for (const SymExpr& size : value.meta.sizes) {
          const auto known = size.evaluate(symbols);
          if (!known || *known < 0) return std::nullopt;
          sample.sizes.push_back(*known);
        }
        break;
      case ValueKind::sym_int:
        sample.dtype = DType::i64;
        sample.integer = value.expr.evaluate(symbols);
        if (!sample.integer) return std::nullopt;
        break;
      case ValueKind::sym_float:
        sample.dtype = DType::f64;
        break;
      case ValueKind::sym_bool:
        sample.dtype = DType::boolean;
        break;
      case ValueKind::custom_object:
        return std::nullopt;
    }
    samples.push_back(std::move(sample));
  }
  return samples;
}

}  // namespace lowtide::graph
