#include <charconv>
#include <cmath>
#include <map>

#include "graph/graph_text.hpp"
#include "graph/graph_text_words.hpp"
#include "graph/quote.hpp"

namespace lowtide::graph {
namespace {

/// Names of values: bare where possible, else in backticks.
std::string value_name(std::string_view name) {
  return is_plain_name(name) && !text::is_reserved(name) ? std::string(name) : escaped(name, '`');
}

/// Names of weights, outputs and the like: bare where possible, else as strings.
std::string label(std::string_view name) {
  return is_plain_name(name) ? std::string(name) : escaped(name, '"');
}

std::string number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  std::string result(digits.data(), end);
  return result.find_first_of(".e") == std::string::npos ? result + ".0" : result;
}
std::string number(std::int64_t value) {
  return std::to_string(value);
}
std::string number(bool value) {
  return value ? "true" : "false";
}

template <class Items, class Format>
std::string join(const Items& items, Format format) {
  std::string result;
  for (const auto& item : items) result += (result.empty() ? "" : ", ") + format(item);
  return result;
}

template <class Items, class Format>
std::string list(const Items& items, Format format, const char* word_if_empty) {
  return (items.empty() ? word_if_empty : "") + ("[" + join(items, format) + "]");
}

class Printer {
 public:
  Printer(const Program& program, const Graph& graph)
      : symbols_(program.symbols), program_(program), graph_(graph) {}

  std::string node(const Node& node) const {
    std::string line = join(node.outputs, [&](const NodeOutput& output) { return result(output); });
    if (!line.empty()) line += " = ";
    line += target(node) + "(";
    line += join(node.arguments, [&](const Argument& argument) {
      return (argument.name.empty() ? "" : label(argument.name) + "=") + value(argument.value);
    });
    line += ")";
    const std::vector<ValueId> produced = node.produced();
    if (!produced.empty())
      line += ": " + join(produced, [&](ValueId id) { return type(graph_.values.at(id)); });
    if (node.name != (produced.empty() ? "" : graph_.values.at(produced[0]).name)) {
      line += " @" + value_name(node.name);
    }
    const std::string source = one_line(node.source);
    return source.empty() ? line : line + "   # " + source;
  }

  /// Statements of the graph. The root has the names that callers use; nested graphs have none.
  std::string body(const std::string& indent, bool root) const {
    std::string lines;
    std::size_t user = 0;
    for (const GraphInput& item : graph_.inputs) {
      const bool counted = item.kind == InputKind::user || item.kind == InputKind::constant;
      lines += indent + input(item, root && counted ? user : SIZE_MAX) + "\n";
      if (counted) ++user;
    }
    for (const Node& item : graph_.nodes) {
      for (const Argument& argument : item.arguments) {
        const auto* nested = std::get_if<GraphArg>(&argument.value);
        if (nested == nullptr || nested->graph == nullptr) continue;
        lines += indent + "graph " + label(nested->name) + " {\n";
        lines += Printer(program_, *nested->graph).body(indent + "  ", false) + indent + "}\n";
      }
      lines += indent + node(item) + "\n";
    }
    std::size_t position = 0;
    for (const GraphOutput& item : graph_.outputs) {
      lines += indent + output(item, position, root) + "\n";
      if (item.kind == OutputKind::user) ++position;
    }
    return lines;
  }

 private:
  static std::string one_line(std::string text) {
    for (char& c : text) {
      if (static_cast<unsigned char>(c) < 0x20) c = ' ';
    }
    const std::size_t first = text.find_first_not_of(' ');
    return first == std::string::npos ? std::string()
                                      : text.substr(first, text.find_last_not_of(' ') - first + 1);
  }

  std::string reference(ValueId id) const { return value_name(graph_.values.at(id).name); }

  std::string result(const NodeOutput& output) const {
    if (const auto* id = std::get_if<ValueId>(&output)) return reference(*id);
    if (const auto* ids = std::get_if<std::vector<ValueId>>(&output)) {
      return list(
          *ids, [&](ValueId id) { return reference(id); }, "");
    }
    return "None";
  }

  /// "aten::add.Tensor" where that can be read back, else the target as it is.
  static std::string target(const Node& node) {
    const std::string name = node.op_name(), overload = node.overload();
    const std::size_t colons = name.find("::");
    if (node.is_operator() && name.find('.') == std::string::npos && is_plain_name(name.substr(0, colons)) &&
        is_plain_name(name.substr(colons + 2))) {
      const std::string prefix = "torch.ops." + name.substr(0, colons) + "." + name.substr(colons + 2);
      const std::string sugar = overload.empty() ? name : name + "." + overload;
      if (node.target == prefix + "." + (overload.empty() ? "default" : overload) &&
          (overload.empty() || is_plain_name(overload))) {
        return sugar;
      }
    }
    return is_plain_name(node.target) ? node.target : escaped(node.target, '"');
  }

  std::string expr(const SymExpr& expr) const { return expr.to_string(symbols_); }

  std::string exprs(const std::vector<SymExpr>& items) const {
    return "[" + join(items, [&](const SymExpr& item) { return expr(item); }) + "]";
  }

  std::string type(const Value& value) const {
    switch (value.kind) {
      case ValueKind::sym_int:
        return "sym_int(" + expr(value.expr) + ")";
      case ValueKind::sym_float:
        return "sym_float";
      case ValueKind::sym_bool:
        return "sym_bool";
      case ValueKind::custom_object:
        return "object";
      case ValueKind::tensor:
        break;
    }
    const TensorMeta& meta = value.meta;
    if (meta.dtype == DType::unknown) return "tensor";
    std::string text = std::string(dtype_name(meta.dtype)) + exprs(meta.sizes);
    const std::string strides = exprs(meta.strides);
    if (strides != exprs(text::contiguous_strides(meta.sizes))) text += " strides " + strides;
    if (!meta.storage_offset.is_constant() || meta.storage_offset.constant() != 0) {
      text += " offset (" + expr(meta.storage_offset) + ")";
    }
    if (!meta.device.empty() && meta.device != "cpu") text += " device " + escaped(meta.device, '"');
    return text;
  }

  template <class T>
  std::string mixed(const MixedList<T>& mixed_list) const {
    return list(
        mixed_list.items,
        [&](const std::variant<T, ValueId>& item) {
          const auto* id = std::get_if<1>(&item);
          return id != nullptr ? reference(*id) : number(std::get<0>(item));
        },
        "");
  }

  /// One overload per alternative of ArgumentValue.
  struct ValuePrinter {
    const Printer& printer;

    std::string operator()(const None&) const { return "None"; }
    std::string operator()(const Ref& reference) const { return printer.reference(reference.value); }
    std::string operator()(const TensorList& tensors) const {
      return list(
          tensors.values, [&](const auto& id) { return id ? printer.reference(*id) : std::string("None"); },
          "tensors");
    }
    std::string operator()(std::int64_t n) const { return number(n); }
    std::string operator()(double n) const { return number(n); }
    std::string operator()(bool n) const { return number(n); }
    std::string operator()(const std::string& text) const { return escaped(text, '"'); }
    std::string operator()(const std::complex<double>& n) const {
      return "complex(" + number(n.real()) + ", " + number(n.imag()) + ")";
    }
    std::string operator()(const std::vector<std::int64_t>& items) const {
      return list(
          items, [](std::int64_t n) { return number(n); }, "");
    }
    std::string operator()(const std::vector<double>& items) const {
      return list(
          items, [](double n) { return number(n); }, "floats");
    }
    std::string operator()(const std::vector<bool>& items) const {
      return list(
          items, [](bool n) { return number(n); }, "bools");
    }
    std::string operator()(const std::vector<std::string>& items) const {
      return list(
          items, [](const std::string& text) { return escaped(text, '"'); }, "strings");
    }
    std::string operator()(const MixedList<std::int64_t>& items) const { return printer.mixed(items); }
    std::string operator()(const MixedList<double>& items) const { return printer.mixed(items); }
    std::string operator()(const MixedList<bool>& items) const { return printer.mixed(items); }
    std::string operator()(const ScalarTypeArg& arg) const {
      return "dtype " + std::string(dtype_name(arg.dtype));
    }
    std::string operator()(const DeviceArg& arg) const {
      return "device " + label(arg.type) + (arg.index ? ":" + std::to_string(*arg.index) : "");
    }
    std::string operator()(const LayoutArg& arg) const { return "layout " + std::to_string(arg.code); }
    std::string operator()(const MemoryFormatArg& arg) const {
      return "memory_format " + std::to_string(arg.code);
    }
    std::string operator()(const GraphArg& arg) const { return "graph " + label(arg.name); }
    std::string operator()(const OperatorArg& arg) const { return "operator " + label(arg.name); }
    std::string operator()(const CustomObjectArg& arg) const { return "object " + label(arg.name); }
  };

  std::string value(const ArgumentValue& argument) const { return std::visit(ValuePrinter{*this}, argument); }

  std::string input(const GraphInput& input, std::size_t user_position) const {
    std::string line;
    for (const auto& [word, kind] : text::kInputWords) {
      if (kind == input.kind) line = std::string(word) + " ";
    }
    if (input.kind == InputKind::constant) {
      return line + label(input.target) + " = " +
             std::visit([&](const auto& constant) { return ValuePrinter{*this}(constant); }, input.constant);
    }
    const Value& value = graph_.values.at(input.value);
    std::string name = input.target;
    if (input.kind == InputKind::user) {
      name = user_position < program_.user_input_names.size() ? program_.user_input_names[user_position]
                                                              : value.name;
    }
    if (input.kind != InputKind::user || name != value.name) line += label(name) + " = ";
    return line + value_name(value.name) + ": " + type(value);
  }

  std::string output(const GraphOutput& output, std::size_t position, bool root) const {
    std::string line;
    for (const auto& [word, kind] : text::kOutputWords) {
      if (kind == output.kind) line = std::string(word) + " ";
    }
    std::string name = output.target;
    if (output.kind == OutputKind::user) {
      name.clear();
      if (root && position < program_.user_output_names.size()) name = program_.user_output_names[position];
      if (name == text::position_name(position)) name.clear();
    }
    return line + (name.empty() ? "" : label(name) + " = ") + value(output.value);
  }

  const SymbolTable& symbols_;
  const Program& program_;
  const Graph& graph_;
};

std::string header(const Program& program) {
  const SymbolTable& symbols = program.symbols;
  std::string lines = "program " + label(program.name) + "\n";
  std::map<std::string, std::string> ranges, hints;  // sorted, for a stable text
  for (const auto& [symbol, range] : program.ranges) {
    ranges[symbols.name(symbol)] = ": [" + (range.min ? std::to_string(*range.min) : "") + ", " +
                                   (range.max ? std::to_string(*range.max) : "") + "]";
  }
  for (const auto& [symbol, hint] : program.hints) hints[symbols.name(symbol)] = ": " + std::to_string(hint);
  for (const auto& [name, range] : ranges) lines += "ranges " + label(name) + range + "\n";
  for (const auto& [name, hint] : hints) lines += "hints " + label(name) + hint + "\n";
  for (const Guard& guard : program.guards) lines += "guard " + escaped(guard.text(), '"') + "\n";
  return lines;
}

}  // namespace

std::string print_node(const Program& program, const Graph& graph, const Node& node) {
  return Printer(program, graph).node(node);
}

std::string print_graph(const Program& program) {
  return header(program) + Printer(program, program.graph).body("", true);
}

}  // namespace lowtide::graph
