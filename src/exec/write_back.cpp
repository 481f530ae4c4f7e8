#include "exec/write_back.hpp"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "exec/operator_traits.hpp"
#include "graph/input_binding.hpp"
#include "graph/storages.hpp"
#include "lowtide/error.hpp"

namespace lowtide::exec {
namespace {

using graph::GraphOutput;
using graph::InputKind;
using graph::Node;
using graph::OutputKind;
using graph::Ref;
using graph::ValueId;

bool is_write_back(const GraphOutput& output) {
  return output.kind == OutputKind::buffer_mutation || output.kind == OutputKind::parameter_mutation;
}

ValueId target_of(const graph::Graph& graph, const GraphOutput& output) {
  const InputKind kind =
      output.kind == OutputKind::buffer_mutation ? InputKind::buffer : InputKind::parameter;
  for (const graph::GraphInput& input : graph.inputs) {
    if (input.kind == kind && input.target == output.target) return input.value;
  }
  throw ArchiveError("the program changes '" + output.target + "', which is none of its inputs");
}

void append(graph::Graph& graph, Node node) {
  node.source = "new value of a buffer";
  annotate_operator(node);
  graph.nodes.push_back(std::move(node));
}

ValueId add_clone(graph::Graph& graph, ValueId of) {
  graph::Value value = graph.values[of];
  do {
    value.name += "_before";
  } while (graph.find_value(value.name));
  const std::string name = value.name;
  const ValueId clone = graph.add_value(std::move(value));
  append(graph, {.target = "torch.ops.aten.clone.default",
                 .name = name,
                 .arguments = {{"self", Ref{of}}},
                 .outputs = {clone}});
  return clone;
}

}  // namespace

void write_back_mutations(graph::Program& program, std::span<const std::uint32_t> weight_file) {
  graph::Graph& graph = program.graph;
  if (std::none_of(graph.outputs.begin(), graph.outputs.end(), is_write_back)) return;
  const graph::StorageTable storages =
      graph::analyse_storages(graph, graph::evaluate_shapes(program, {}), weight_file);
  std::vector<std::pair<ValueId, ValueId>> copies;  // to, from
  std::set<graph::StorageId> changed;
  for (const GraphOutput& output : graph.outputs) {
    const auto* from = std::get_if<Ref>(&output.value);
    if (!is_write_back(output) || from == nullptr) continue;
    copies.emplace_back(target_of(graph, output), from->value);
    changed.insert(storages.of_value[copies.back().first]);
  }
  const auto changes = [&](ValueId value) { return changed.contains(storages.of_value[value]); };
  for (auto& [to, from] : copies) {
    if (from != to && changes(from)) from = add_clone(graph, from);
  }
  for (GraphOutput& output : graph.outputs) {
    auto* ref = std::get_if<Ref>(&output.value);
    if (ref != nullptr && !is_write_back(output) && changes(ref->value))
      ref->value = add_clone(graph, ref->value);
  }
  for (const auto& [to, from] : copies) {
    if (from == to) continue;
    append(graph, {.target = "torch.ops.aten.copy_.default",
                   .name = graph.values[to].name + "_written",
                   .arguments = {{"self", Ref{to}}, {"src", Ref{from}}},
                   .outputs = {graph::OutputNone{}}});
  }
  graph.outputs.erase(std::remove_if(graph.outputs.begin(), graph.outputs.end(), is_write_back),
                      graph.outputs.end());
}

}  // namespace lowtide::exec
