#include <algorithm>
#include <cstdio>
#include <map>

#include "graph/graph_text.hpp"
#include "graph/quote.hpp"
#include "lowtide/commands.hpp"
#include "lowtide/model.hpp"
#include "session/model_data.hpp"

namespace lowtide::app {
namespace {

using detail::ModelData;

std::string type_text(const graph::Program& program, const graph::Value& value) {
  if (value.kind != graph::ValueKind::tensor)
    return value.kind == graph::ValueKind::sym_int     ? "integer"
           : value.kind == graph::ValueKind::sym_float ? "float"
                                                       : "bool";
  std::string text(graph::dtype_name(value.meta.dtype));
  text += "[";
  for (std::size_t d = 0; d < value.meta.sizes.size(); ++d)
    text += (d ? ", " : "") + value.meta.sizes[d].to_string(program.symbols);
  return text + "]";
}

std::string constant_text(const graph::ConstantInput& constant) {
  if (const auto* i = std::get_if<std::int64_t>(&constant)) return std::to_string(*i);
  if (const auto* d = std::get_if<double>(&constant)) return std::to_string(*d);
  if (const auto* b = std::get_if<bool>(&constant)) return *b ? "true" : "false";
  if (const auto* s = std::get_if<std::string>(&constant)) return "'" + *s + "'";
  return "None";
}

void print_inputs(const ModelData& data) {
  const graph::Graph& graph = data.program().graph;
  std::printf("inputs\n");
  for (std::size_t i = 0; i < data.user_inputs().size(); ++i) {
    const graph::GraphInput& input = graph.inputs[data.user_inputs()[i]];
    const std::string type = input.kind == graph::InputKind::constant
                                 ? "fixed to " + constant_text(input.constant)
                                 : type_text(data.program(), graph.values[input.value]);
    std::printf("  %04zu  %s: %s\n", i, data.program().user_input_names[i].c_str(), type.c_str());
  }
}

void print_outputs(const ModelData& data) {
  const graph::Graph& graph = data.program().graph;
  std::printf("outputs\n");
  for (std::size_t i = 0; i < data.user_outputs().size(); ++i) {
    const graph::GraphOutput& output = graph.outputs[data.user_outputs()[i]];
    const auto* ref = std::get_if<graph::Ref>(&output.value);
    std::printf("  %04zu  %s: %s\n", i, data.program().user_output_names[i].c_str(),
                ref ? type_text(data.program(), graph.values[ref->value]).c_str() : "fixed at export");
  }
}

void print_weights(const ModelData& data) {
  Bytes largest = 0;
  Bytes small = 0;
  Bytes state = 0;
  Bytes used = 0;
  for (std::size_t f = 0; f < data.weights().files.size(); ++f) {
    const Bytes bytes = data.weights().files[f].bytes;
    const plan::StorageUse& use = data.storage_uses()[f];
    largest = std::max(largest, bytes);
    if (bytes < plan::kSmallStorage) small += bytes;
    if (use.state) state += bytes;
    if (!use.uses.empty()) used += bytes;
  }
  std::printf(
      "weights\n  %zu names, %zu storages, %s; %s used by the graph; largest %s; %s in small pieces\n",
      data.weights().weights.size(), data.weights().files.size(),
      format_bytes(data.weights().total_bytes()).c_str(), format_bytes(used).c_str(),
      format_bytes(largest).c_str(), format_bytes(small).c_str());
  std::printf("  move as %zu units\n", data.packing().units.size());
  if (state > 0)
    std::printf("state\n  %s written by the program, reset before every job\n", format_bytes(state).c_str());
}

void print_operators(const graph::Graph& graph) {
  std::map<std::string, std::size_t> counts;
  for (const graph::Node& node : graph.nodes) ++counts[node.is_operator() ? node.op_name() : node.target];
  std::vector<std::pair<std::size_t, std::string>> order;
  for (const auto& [name, count] : counts) order.emplace_back(count, name);
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::printf("operators\n  %zu nodes\n", graph.nodes.size());
  for (const auto& [count, name] : order) std::printf("  %6zu  %s\n", count, name.c_str());
}

/// Texts of files: control characters would write to the terminal.
std::string printable(const std::string& text) {
  const std::string quoted = graph::escaped(text, '\0');
  return quoted.substr(1, quoted.size() - 2);
}

void print_guards(const graph::Program& program) {
  if (program.guards.empty()) return;
  std::printf("guards\n  %zu, %zu of them not evaluated\n", program.guards.size(),
              graph::count_unevaluated(program));
  for (const graph::Guard& guard : program.guards) {
    std::printf("  %-13s %s", guard.evaluated() ? "evaluated" : "not evaluated",
                printable(guard.text()).c_str());
    std::printf(guard.evaluated() ? "\n" : "  (%s)\n", guard.reason().c_str());
  }
}

}  // namespace

int inspect(const InspectCommand& command) {
  const Model model = Model::open(command.model, command.common.program);
  const ModelData& data = model.data();
  std::printf("%s: program '%s'\n", model.path().c_str(), data.program().name.c_str());
  print_inputs(data);
  print_outputs(data);
  print_weights(data);
  print_operators(data.program().graph);
  print_guards(data.program());
  if (command.common.verbose) std::printf("graph\n%s", graph::print_graph(data.program()).c_str());
  return 0;
}

}  // namespace lowtide::app
