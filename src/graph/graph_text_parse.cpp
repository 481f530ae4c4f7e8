#include <charconv>
#include <cmath>
#include <deque>
#include <utility>

#include "graph/graph_text.hpp"
#include "graph/graph_text_words.hpp"
#include "graph/quote.hpp"
#include "graph/text_line.hpp"
#include "lowtide/error.hpp"

namespace lowtide::graph {
namespace {

using text::Line;

constexpr int kDeepestGraph = 50;

/// Reads the lines of one graph; nested ones recursively.
class GraphParser {
 public:
  using Lines = std::deque<Line>;

  GraphParser(Lines& lines, Program& program, Graph& graph, int depth)
      : lines_(lines), program_(program), graph_(graph), depth_(depth) {}

  /// Until the closing brace, or the end for the root.
  void parse() {
    while (!lines_.empty()) {
      Line line = lines_.front();
      lines_.pop_front();
      if (line.at_end()) continue;
      if (depth_ > 0 && line.accept("}")) return line.expect_end();
      statement(line);
    }
    if (depth_ > 0) throw ArchiveError("graph text: a nested graph is not closed");
  }

 private:
  void statement(Line& line) {
    if (depth_ == 0 && header(line)) return line.expect_end();
    if (line.accept_word("graph")) return nested(line);
    for (const auto& [word, kind] : text::kInputWords) {
      if (line.accept_word(word)) return inputs(line, kind);
    }
    for (const auto& [word, kind] : text::kOutputWords) {
      if (line.accept(std::string(word) + " ")) return outputs(line, kind);
    }
    node(line);
  }

  bool header(Line& line) {
    if (line.accept_word("program")) {
      program_.name = line.name();
    } else if (line.accept_word("ranges")) {
      do {
        range(line);
      } while (line.accept(","));
    } else if (line.accept_word("hints")) {
      do {
        const SymbolId symbol = program_.symbols.intern(line.name());
        line.expect(":");
        program_.hints[symbol] = line.integer();
      } while (line.accept(","));
    } else if (line.accept_word("guard")) {
      program_.guards.emplace_back(line.name());
    } else {
      return false;
    }
    return true;
  }

  void range(Line& line) {
    SymbolRange& range = program_.ranges[program_.symbols.intern(line.name())];
    line.expect(":");
    line.expect("[");
    if (line.peek() != ',') range.min = line.integer();
    line.expect(",");
    if (line.peek() != ']') range.max = line.integer();
    line.expect("]");
  }

  void nested(Line& line) {
    GraphArg body;
    body.name = line.name();
    line.expect("{");
    line.expect_end();
    if (depth_ == kDeepestGraph) line.fail("graphs are nested too deeply");
    auto graph = std::make_shared<Graph>();
    GraphParser(lines_, program_, *graph, depth_ + 1).parse();
    body.graph = std::move(graph);
    pending_.push_back(std::move(body));
  }

  ValueId define(Line& line, std::string name) {
    if (graph_.find_value(name)) line.fail("value " + in_quotes(name) + " exists already");
    Value value;
    value.name = std::move(name);
    return graph_.add_value(std::move(value));
  }

  void inputs(Line& line, InputKind kind) {
    do {
      GraphInput input;
      input.kind = kind;
      std::string name = line.name();
      const bool user = kind == InputKind::user || kind == InputKind::constant;
      if (depth_ == 0 && user) program_.user_input_names.push_back(name);
      if (kind == InputKind::constant) {
        line.expect("=");
        input.constant = constant(line);
        input.target = std::move(name);
      } else {
        std::string value = line.accept("=") ? line.name() : name;
        if (kind != InputKind::user) input.target = std::move(name);
        input.value = define(line, std::move(value));
        line.expect(":");
        type(line, graph_.values[input.value]);
      }
      graph_.inputs.push_back(std::move(input));
    } while (line.accept(","));
    line.expect_end();
  }

  ConstantInput constant(Line& line) {
    const ArgumentValue given = value(line);
    if (const auto* integer = std::get_if<std::int64_t>(&given)) return *integer;
    if (const auto* real = std::get_if<double>(&given)) return *real;
    if (const auto* flag = std::get_if<bool>(&given)) return *flag;
    if (const auto* text = std::get_if<std::string>(&given)) return *text;
    if (std::holds_alternative<None>(given)) return None{};
    line.fail("expected a constant");
  }

  void outputs(Line& line, OutputKind kind) {
    do {
      GraphOutput output;
      output.kind = kind;
      const std::size_t start = line.position();
      std::string name;
      if (line.peek() == '"' || line.peek() == '`' || is_plain_name(std::string(1, line.peek()))) {
        name = line.name();
        if (!line.accept("=")) {
          name.clear();
          line.back_to(start);
        }
      }
      output.value = value(line);
      if (kind != OutputKind::user) {
        output.target = std::move(name);
      } else if (depth_ == 0) {
        auto& names = program_.user_output_names;
        names.push_back(name.empty() ? text::position_name(names.size()) : std::move(name));
      }
      graph_.outputs.push_back(std::move(output));
    } while (line.accept(","));
    line.expect_end();
  }

  void node(Line& line) {
    Node node;
    const std::size_t start = line.position();
    std::vector<std::vector<std::string>> names;  // per output; one empty name for None
    std::vector<bool> lists;
    const bool has_results = results(line, names, lists);
    if (!has_results) {
      line.back_to(start);
      names.clear();
    }
    node.target = target(line);
    line.expect("(");
    if (!line.accept(")")) {
      do {
        node.arguments.push_back(argument(line));
      } while (line.accept(","));
      line.expect(")");
    }
    define_results(line, node, names, lists);
    const std::vector<ValueId> produced = node.produced();
    if (!produced.empty()) node.name = graph_.values[produced[0]].name;
    if (line.accept("@")) node.name = line.name();
    node.source = line.comment();
    if (node.source.empty()) line.expect_end();
    if (!pending_.empty())
      line.fail("nested graph " + in_quotes(pending_.front().name) + " is not used by the next node");
    graph_.nodes.push_back(std::move(node));
  }

  /// "a, [b, c], None =". False when the line does not begin like that.
  static bool results(Line& line, std::vector<std::vector<std::string>>& names, std::vector<bool>& lists) {
    do {
      names.emplace_back();
      lists.push_back(line.accept("["));
      if (lists.back() && line.accept("]")) continue;
      do {
        const char first = line.peek();
        if (first != '`' && !is_plain_name(std::string(1, first))) return false;
        if (!lists.back() && line.accept_word("None")) break;
        names.back().push_back(line.name());
      } while (lists.back() && line.accept(","));
      if (lists.back() && !line.accept("]")) return false;
    } while (line.accept(","));
    return line.accept("=");
  }

  void define_results(Line& line, Node& node, const std::vector<std::vector<std::string>>& names,
                      const std::vector<bool>& lists) {
    bool first = true;
    for (std::size_t i = 0; i < names.size(); ++i) {
      std::vector<ValueId> ids;
      for (const std::string& name : names[i]) {
        line.expect(std::exchange(first, false) ? ":" : ",");
        ids.push_back(define(line, name));
        type(line, graph_.values[ids.back()]);
      }
      if (lists[i]) {
        node.outputs.emplace_back(std::move(ids));
      } else if (ids.empty()) {
        node.outputs.emplace_back(OutputNone{});
      } else {
        node.outputs.emplace_back(ids[0]);
      }
    }
  }

  static std::string target(Line& line) {
    if (line.peek() == '"') return line.string();
    const std::string name(line.bare());
    if (name.empty()) line.fail("expected an operator");
    if (!line.accept("::")) return name;
    const std::string rest(line.bare());
    if (rest.empty()) line.fail("expected an operator");
    return "torch.ops." + name + "." + rest + (rest.find('.') == std::string::npos ? ".default" : "");
  }

  Argument argument(Line& line) {
    Argument argument;
    const std::size_t start = line.position();
    const char first = line.peek();
    if (first == '"' || is_plain_name(std::string(1, first))) {
      argument.name = line.name();
      if (!line.accept("=")) {
        argument.name.clear();
        line.back_to(start);
      }
    }
    argument.value = value(line);
    return argument;
  }

  ArgumentValue value(Line& line) {
    const char first = line.peek();
    if (first == '"') return line.string();
    if (first == '[') return list(line);
    if (first == '-' || (first >= '0' && first <= '9')) return number(line);
    if (first == '`') return Ref{known(line, line.name())};
    const std::string word(line.bare());
    if (word.empty()) line.fail("expected a value");
    if (word == "None") return None{};
    if (word == "true" || word == "false") return word == "true";
    if (word == "inf") return HUGE_VAL;
    if (word == "nan") return std::nan("");
    if (word == "dtype") return ScalarTypeArg{dtype(line, line.name())};
    if (word == "device") return device(line);
    if (word == "layout") return LayoutArg{static_cast<int>(line.integer())};
    if (word == "memory_format") return MemoryFormatArg{static_cast<int>(line.integer())};
    if (word == "graph") return take_nested(line, line.name());
    if (word == "operator") return OperatorArg{line.name()};
    if (word == "object") return CustomObjectArg{line.name()};
    if (word == "complex") return complex(line);
    if (line.accept("[]")) {
      if (word == "floats") return std::vector<double>{};
      if (word == "bools") return std::vector<bool>{};
      if (word == "strings") return std::vector<std::string>{};
      if (word == "tensors") return TensorList{};
      line.fail("unknown kind of list " + in_quotes(word));
    }
    return Ref{known(line, word)};
  }

  ValueId known(Line& line, const std::string& name) const {
    const auto id = graph_.find_value(name);
    if (!id) line.fail("there is no value " + in_quotes(name) + " yet");
    return *id;
  }

  static DType dtype(Line& line, const std::string& name) {
    const auto dtype = dtype_from_name(name);
    if (!dtype) line.fail("unknown dtype " + in_quotes(name));
    return *dtype;
  }

  static ArgumentValue device(Line& line) {
    DeviceArg device{line.name(), {}};
    if (line.accept(":")) device.index = static_cast<int>(line.integer());
    return device;
  }

  static ArgumentValue number(Line& line) {
    if (line.accept("-inf")) return -HUGE_VAL;
    const std::string text(line.digits());
    const bool real = text.find_first_of(".e") != std::string::npos;
    std::int64_t integer = 0;
    double value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, status] =
        real ? std::from_chars(text.data(), end, value) : std::from_chars(text.data(), end, integer);
    if (status != std::errc() || stop != end) line.fail("expected a number");
    if (real) return value;
    return integer;
  }

  static double real(Line& line) {
    if (line.accept_word("inf")) return HUGE_VAL;
    if (line.accept_word("nan")) return std::nan("");
    const ArgumentValue value = number(line);
    const auto* result = std::get_if<double>(&value);
    if (result == nullptr) line.fail("expected a number with a point");
    return *result;
  }

  static ArgumentValue complex(Line& line) {
    line.expect("(");
    const double re = real(line);
    line.expect(",");
    const double im = real(line);
    line.expect(")");
    return std::complex<double>(re, im);
  }

  ArgumentValue take_nested(Line& line, const std::string& name) {
    if (pending_.empty() || pending_.front().name != name) {
      line.fail("nested graph " + in_quotes(name) + " is not written before this node");
    }
    GraphArg body = std::move(pending_.front());
    pending_.pop_front();
    return body;
  }

  /// What a list is follows from its items: tensors or None, texts, or numbers mixed with symbolic values.
  ArgumentValue list(Line& line) {
    line.expect("[");
    std::vector<ArgumentValue> items;
    if (!line.accept("]")) {
      do {
        if (line.peek() == '[') line.fail("a list inside a list");
        items.push_back(value(line));
      } while (line.accept(","));
      line.expect("]");
    }
    if (items.empty()) return std::vector<std::int64_t>{};
    ValueKind kind = ValueKind::tensor;
    for (const ArgumentValue& item : items) {
      if (const auto* reference = std::get_if<Ref>(&item)) kind = graph_.values[reference->value].kind;
      if (std::holds_alternative<std::int64_t>(item)) kind = ValueKind::sym_int;
      if (std::holds_alternative<double>(item)) kind = ValueKind::sym_float;
      if (std::holds_alternative<bool>(item)) kind = ValueKind::sym_bool;
      if (std::holds_alternative<std::string>(item)) return strings(line, items);
    }
    if (kind == ValueKind::sym_int) return numbers<std::int64_t>(line, items);
    if (kind == ValueKind::sym_float) return numbers<double>(line, items);
    if (kind == ValueKind::sym_bool) return numbers<bool>(line, items);
    TensorList tensors;
    for (const ArgumentValue& item : items) {
      const auto* reference = std::get_if<Ref>(&item);
      if (reference == nullptr && !std::holds_alternative<None>(item)) line.fail("the list mixes kinds");
      tensors.values.push_back(reference == nullptr ? std::nullopt : std::optional(reference->value));
    }
    return tensors;
  }

  static ArgumentValue strings(Line& line, const std::vector<ArgumentValue>& items) {
    std::vector<std::string> texts;
    for (const ArgumentValue& item : items) {
      const auto* text = std::get_if<std::string>(&item);
      if (text == nullptr) line.fail("the list mixes kinds");
      texts.push_back(*text);
    }
    return texts;
  }

  template <class T>
  static ArgumentValue numbers(Line& line, const std::vector<ArgumentValue>& items) {
    MixedList<T> mixed;
    std::vector<T> plain;
    for (const ArgumentValue& item : items) {
      if (const auto* reference = std::get_if<Ref>(&item)) {
        mixed.items.emplace_back(std::in_place_index<1>, reference->value);
      } else if (const auto* n = std::get_if<T>(&item)) {
        mixed.items.emplace_back(std::in_place_index<0>, *n);
        plain.push_back(*n);
      } else {
        line.fail("the list mixes kinds");
      }
    }
    if (plain.size() == items.size()) return plain;
    return mixed;
  }

  std::vector<SymExpr> exprs(Line& line) {
    std::vector<SymExpr> items;
    line.expect("[");
    if (line.accept("]")) return items;
    do {
      items.push_back(SymExpr::parse_infix(line.until(",]"), program_.symbols));
    } while (line.accept(","));
    line.expect("]");
    return items;
  }

  SymExpr parenthesised(Line& line) {
    line.expect("(");
    SymExpr expr = SymExpr::parse_infix(line.until(")"), program_.symbols);
    line.expect(")");
    return expr;
  }

  void type(Line& line, Value& value) {
    const std::string word(line.bare());
    if (word == "sym_int") {
      value.kind = ValueKind::sym_int;
      value.expr = parenthesised(line);
    } else if (word == "sym_float") {
      value.kind = ValueKind::sym_float;
    } else if (word == "sym_bool") {
      value.kind = ValueKind::sym_bool;
    } else if (word == "object") {
      value.kind = ValueKind::custom_object;
    } else if (word != "tensor") {
      value.meta.dtype = dtype(line, word);
      value.meta.sizes = exprs(line);
      value.meta.strides =
          line.accept_word("strides") ? exprs(line) : text::contiguous_strides(value.meta.sizes);
      if (value.meta.strides.size() != value.meta.sizes.size())
        line.fail("sizes and strides differ in number");
      if (line.accept_word("offset")) value.meta.storage_offset = parenthesised(line);
      value.meta.device = line.accept_word("device") ? line.name() : "cpu";
    }
  }

  Lines& lines_;
  Program& program_;
  Graph& graph_;
  int depth_;
  std::deque<GraphArg> pending_;  // nested graphs written, not yet taken by a node
};

}  // namespace

Program parse_graph(std::string_view text) {
  GraphParser::Lines lines;
  for (std::size_t start = 0, number = 1; start <= text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    lines.emplace_back(text.substr(start, end - start), number);
    start = end + 1;
  }
  Program program;
  program.name = "model";
  GraphParser(lines, program, program.graph, 0).parse();
  resolve_guards(program);
  return program;
}

}  // namespace lowtide::graph
