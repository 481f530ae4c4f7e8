#include "archive/exported_program.hpp"

#include <unordered_set>
#include <utility>
#include <vector>

#include "archive/argument_reader.hpp"
#include "archive/pytree_names.hpp"
#include "archive/stack_trace.hpp"
#include "graph/graph_text_words.hpp"
#include "graph/quote.hpp"

namespace lowtide::archive {

using graph::Graph;
using graph::GraphInput;
using graph::GraphOutput;
using graph::in_quotes;
using graph::InputKind;
using graph::OutputKind;
using graph::SymExpr;
using graph::Value;
using graph::ValueKind;

namespace {

constexpr std::int64_t kSchemaMajor = 8;

class ProgramReader final : public GraphReader {
 public:
  explicit ProgramReader(graph::Program& program) : program_(program) {}

  void read(Json json) {
    const std::int64_t major = json.at("schema_version").at("major").integer();
    if (major != kSchemaMajor) {
      json.at("schema_version")
          .fail("export schema " + std::to_string(major) + " is not supported, only " +
                std::to_string(kSchemaMajor) + "; export the model with torch 2.11");
    }
    const Json module = json.at("graph_module");
    read_values_and_nodes(module.at("graph"), program_.graph);
    read_signature(module.at("signature"));
    read_ranges(json.at("range_constraints"));
    if (const auto guards = json.find("guards_code")) {
      for (const Json guard : guards->elements()) program_.guards.emplace_back(std::string(guard.string()));
    }
    read_names(module);
    graph::resolve_guards(program_);
    solve_hints(module.at("graph"));
  }

  Graph read_nested(Json json) override {
    Graph graph;
    read_values_and_nodes(json, graph);
    ArgumentReader arguments(graph, *this);
    for (const Json input : json.at("inputs").elements())
      graph.inputs.push_back(user_input(input, arguments));
    for (const Json output : json.at("outputs").elements()) {
      graph.outputs.push_back({OutputKind::user, arguments.value(output), {}});
    }
    return graph;
  }

 private:
  // --- values ---

  SymExpr size_expr(Json json) {
    const Json content = json.only_member();
    if (content.key() == "as_int") return {content.integer()};
    if (content.key() != "as_expr") content.fail("unknown kind of size " + in_quotes(content.key()));
    SymExpr expr = SymExpr::parse(content.at("expr_str").string(), program_.symbols);
    const auto hint = content.find("hint");
    const auto number = hint ? hint->find("as_int") : std::nullopt;
    if (!number) return expr;
    if (const auto symbol = expr.as_symbol()) program_.hints.try_emplace(*symbol, number->integer());
    return expr;
  }

  /// Symbols of the inputs that occur only inside of expressions there, such as 2*s0: solved from the
  /// expressions' hints.
  void solve_hints(Json graph) {
    std::vector<std::pair<SymExpr, std::int64_t>> hinted;
    for (const GraphInput& input : program_.graph.inputs) {
      if (input.kind != InputKind::user) continue;
      const auto entry = graph.at("tensor_values").find(program_.graph.values[input.value].name);
      if (!entry) continue;
      for (const Json size : entry->at("sizes").elements()) {
        const auto expr = size.find("as_expr");
        const auto hint = expr ? expr->find("hint") : std::nullopt;
        const auto number = hint ? hint->find("as_int") : std::nullopt;
        if (number) hinted.emplace_back(size_expr(size), number->integer());
      }
    }
    graph::SymbolValues known(program_.symbols.size());
    for (const auto& [symbol, hint] : program_.hints) known[symbol] = hint;
    for (bool progress = true; std::exchange(progress, false);) {
      for (const auto& [expr, hint] : hinted) {
        const auto solution = expr.solve(hint, known);
        if (!solution) continue;
        known[solution->first] = solution->second;
        program_.hints.emplace(solution->first, solution->second);
        progress = true;
      }
    }
  }

  std::vector<SymExpr> size_list(Json list) {
    std::vector<SymExpr> sizes;
    sizes.reserve(list.size());
    for (const Json item : list.elements()) {
      sizes.push_back(size_expr(item));
      if (sizes.back().is_constant() && sizes.back().constant() < 0) item.fail("a negative number");
    }
    return sizes;
  }

  graph::TensorMeta tensor_meta(Json json) {
    graph::TensorMeta meta;
    const auto dtype = graph::dtype_from_schema(json.at("dtype").integer());
    if (!dtype) json.at("dtype").fail("unknown element type");
    meta.dtype = *dtype;
    meta.sizes = size_list(json.at("sizes"));
    meta.strides = size_list(json.at("strides"));
    if (meta.sizes.size() != meta.strides.size()) json.fail("sizes and strides differ in number");
    meta.storage_offset = size_expr(json.at("storage_offset"));
    const Json device = json.at("device");
    meta.device = device.at("type").string();
    if (const auto index = device.find("index")) meta.device += ":" + std::to_string(index->integer());
    return meta;
  }

  static void declare(Graph& graph, Json json, Value value) {
    value.name = json.key();
    if (graph.find_value(value.name))
      json.fail("the graph defines value " + in_quotes(value.name) + " twice");
    graph.add_value(std::move(value));
  }

  void read_values(Json json, Graph& graph) {
    for (const Json entry : json.at("tensor_values").members()) {
      Value value;
      value.meta = tensor_meta(entry);
      declare(graph, entry, std::move(value));
    }
    for (const Json entry : json.at("sym_int_values").members()) {
      Value value;
      value.kind = ValueKind::sym_int;
      value.expr = size_expr(entry);
      declare(graph, entry, std::move(value));
    }
    const auto declare_all = [&](const char* key, ValueKind kind) {
      const auto entries = json.find(key);
      if (!entries) return;
      for (const Json entry : entries->members()) {
        Value value;
        value.kind = kind;
        declare(graph, entry, std::move(value));
      }
    };
    declare_all("sym_bool_values", ValueKind::sym_bool);
    declare_all("sym_float_values", ValueKind::sym_float);
    declare_all("custom_obj_values", ValueKind::custom_object);
  }

  // --- nodes ---

  void read_values_and_nodes(Json json, Graph& graph) {
    read_values(json, graph);
    ArgumentReader arguments(graph, *this);
    const Json nodes = json.at("nodes");
    graph.nodes.reserve(nodes.size());
    for (const Json node : nodes.elements()) graph.nodes.push_back(read_node(node, graph, arguments));
  }

  static graph::Node read_node(Json json, const Graph& graph, ArgumentReader& arguments) {
    graph::Node node;
    node.target = json.at("target").string();
    const Json inputs = json.at("inputs");
    node.arguments.reserve(inputs.size());
    for (const Json input : inputs.elements()) {
      node.arguments.push_back({std::string(input.at("name").string()), arguments.value(input.at("arg"))});
    }
    for (const Json output : json.at("outputs").elements()) node.outputs.push_back(arguments.output(output));
    if (const auto name = json.find("name")) {
      node.name = name->string();
    } else if (const auto produced = node.produced(); !produced.empty()) {
      node.name = graph.values[produced[0]].name;
    }
    if (const auto trace = json.at("metadata").find("stack_trace"))
      node.source = innermost_frame(trace->string());
    return node;
  }

  // --- signature ---

  GraphInput user_input(Json argument, const ArgumentReader& arguments) {
    GraphInput input;
    const Json content = argument.only_member();
    if (content.key() == "as_custom_obj") {
      input.kind = InputKind::custom_object;
      input.value = arguments.reference(content.at("name"), ValueKind::custom_object);
      input.target = content.at("name").string();
      return input;
    }
    const graph::ArgumentValue value = arguments.value(argument);
    if (const auto* reference = std::get_if<graph::Ref>(&value)) {
      input.value = reference->value;
      return input;
    }
    input.kind = InputKind::constant;
    input.constant = constant(argument, value);
    return input;
  }

  static graph::ConstantInput constant(Json json, const graph::ArgumentValue& value) {
    if (std::holds_alternative<graph::None>(value)) return graph::None{};
    if (const auto* integer = std::get_if<std::int64_t>(&value)) return *integer;
    if (const auto* real = std::get_if<double>(&value)) return *real;
    if (const auto* flag = std::get_if<bool>(&value)) return *flag;
    if (const auto* text = std::get_if<std::string>(&value)) return *text;
    json.fail("inputs of this kind are not supported");
  }

  GraphInput read_input(Json spec, ArgumentReader& arguments) {
    const Json content = spec.only_member();
    const std::string_view tag = content.key();
    if (tag == "user_input") return user_input(content.at("arg"), arguments);
    GraphInput input;
    if (tag == "constant_input") {
      input.kind = InputKind::constant;
      input.target = content.at("name").string();
      input.constant = constant(content.at("value"), arguments.value(content.at("value")));
      return input;
    }
    const auto bind = [&](InputKind kind, const char* target) {
      input.kind = kind;
      input.value = arguments.reference(content.at("arg").at("name"), ValueKind::tensor);
      input.target = content.at(target).string();
      return input;
    };
    if (tag == "parameter") return bind(InputKind::parameter, "parameter_name");
    if (tag == "buffer") return bind(InputKind::buffer, "buffer_name");
    if (tag == "tensor_constant") return bind(InputKind::tensor_constant, "tensor_constant_name");
    if (tag != "custom_obj" && tag != "token") content.fail("unknown kind of input " + in_quotes(tag));
    const Json name = content.at("arg").at("name");
    input.kind = tag == "token" ? InputKind::token : InputKind::custom_object;
    input.target = tag == "token" ? name.string() : content.at("custom_obj_name").string();
    input.value = declared_object(name);
    return input;
  }

  /// Tokens are declared nowhere else.
  graph::ValueId declared_object(Json name) {
    if (const auto id = program_.graph.find_value(name.string())) return *id;
    Value value;
    value.name = name.string();
    value.kind = ValueKind::custom_object;
    return program_.graph.add_value(std::move(value));
  }

  GraphOutput read_output(Json spec, const ArgumentReader& arguments) {
    const Json content = spec.only_member();
    const std::string_view tag = content.key();
    GraphOutput output;
    if (tag == "user_output") {
      output.value = arguments.value(content.at("arg"));
      return output;
    }
    if (tag == "token") {
      output.kind = OutputKind::token;
      output.value = graph::Ref{declared_object(content.at("arg").at("name"))};
      return output;
    }
    const auto bind = [&](OutputKind kind, const char* target) {
      output.kind = kind;
      output.value = graph::Ref{arguments.reference(content.at("arg").at("name"), ValueKind::tensor)};
      if (target != nullptr) output.target = content.at(target).string();
      return output;
    };
    if (tag == "loss_output") return bind(OutputKind::loss, nullptr);
    if (tag == "buffer_mutation") return bind(OutputKind::buffer_mutation, "buffer_name");
    if (tag == "parameter_mutation") return bind(OutputKind::parameter_mutation, "parameter_name");
    if (tag == "user_input_mutation") return bind(OutputKind::user_input_mutation, "user_input_name");
    if (tag.starts_with("gradient_to_"))
      content.fail("training graphs are not supported; export the model for inference");
    content.fail("unknown kind of output " + in_quotes(tag));
  }

  void read_signature(Json json) {
    ArgumentReader arguments(program_.graph, *this);
    for (const Json spec : json.at("input_specs").elements()) {
      program_.graph.inputs.push_back(read_input(spec, arguments));
    }
    for (const Json spec : json.at("output_specs").elements()) {
      program_.graph.outputs.push_back(read_output(spec, arguments));
    }
  }

  void read_ranges(Json json) {
    for (const Json entry : json.members()) {
      graph::SymbolRange& range = program_.ranges[program_.symbols.intern(entry.key())];
      if (const auto min = entry.find("min_val")) range.min = min->integer();
      if (const auto max = entry.find("max_val")) range.max = max->integer();
    }
  }

  // --- names for callers ---

  void read_names(Json module) {
    std::vector<std::string> inputs, outputs;
    const auto named_tuples = module.find("treespec_namedtuple_fields");
    for (const Json entry : module.at("module_call_graph").elements()) {
      if (!entry.at("fqn").string().empty()) continue;
      const auto signature = entry.find("signature");
      if (!signature) break;
      inputs = input_names(*signature, named_tuples);
      outputs = output_names(*signature, named_tuples);
      break;
    }
    name_inputs(std::move(inputs));
    name_outputs(std::move(outputs));
  }

  /// The recorded names where they are complete, else the names in the graph, which are unique.
  void name_inputs(std::vector<std::string> recorded) {
    std::vector<GraphInput*> inputs;
    for (GraphInput& input : program_.graph.inputs) {
      if (input.kind == InputKind::user || input.kind == InputKind::constant) inputs.push_back(&input);
    }
    recorded.resize(recorded.size() == inputs.size() ? inputs.size() : 0);
    recorded.resize(inputs.size());
    for (const bool own : {false, true}) {
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        if (!own && !recorded[i].empty()) continue;
        const bool constant = inputs[i]->kind == InputKind::constant;
        recorded[i] = constant ? inputs[i]->target : program_.graph.values[inputs[i]->value].name;
      }
      if (unique(recorded)) break;
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i]->kind == InputKind::constant) inputs[i]->target = recorded[i];
    }
    program_.user_input_names = std::move(recorded);
  }

  void name_outputs(std::vector<std::string> recorded) {
    std::size_t count = 0;
    for (const GraphOutput& output : program_.graph.outputs) count += output.kind == OutputKind::user ? 1 : 0;
    recorded.resize(recorded.size() == count ? count : 0);
    recorded.resize(count);
    for (const bool positions : {false, true}) {
      for (std::size_t i = 0; i < count; ++i) {
        if (positions || recorded[i].empty()) recorded[i] = graph::text::position_name(i);
      }
      if (unique(recorded)) break;
    }
    program_.user_output_names = std::move(recorded);
  }

  static bool unique(const std::vector<std::string>& names) {
    return std::unordered_set<std::string>(names.begin(), names.end()).size() == names.size();
  }

  graph::Program& program_;
};

}  // namespace

graph::Program read_program(Json exported_program, const std::string& name) {
  graph::Program program;
  program.name = name;
  ProgramReader(program).read(exported_program);
  return program;
}

}  // namespace lowtide::archive
