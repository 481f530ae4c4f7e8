#include "session/shape_plan.hpp"

#include <algorithm>

#include "exec/operator_traits.hpp"
#include "graph/graph_text.hpp"
#include "plan/activation_profile.hpp"

namespace lowtide::detail {
namespace {

std::string shape_text(const ModelData& model, const graph::InputDescriptions& inputs) {
  std::string text;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i]) continue;
    const auto& names = model.program().user_input_names;
    text += (text.empty() ? "" : ", ") + (i < names.size() ? names[i] : std::to_string(i)) + " " +
            std::string(graph::dtype_name(inputs[i]->dtype)) + "[";
    for (std::size_t d = 0; d < inputs[i]->sizes.size(); ++d)
      text += (d ? ", " : "") + std::to_string(inputs[i]->sizes[d]);
    text += "]";
    if (inputs[i]->integer) text += "=" + std::to_string(*inputs[i]->integer);
  }
  return text;
}

/// Memory of each step as the bounds have it.
plan::JobMemory bounded_memory(const plan::ActivationProfile& profile) {
  plan::JobMemory memory{.inputs = profile.inputs};
  for (std::size_t step = 0; step < profile.steps.size(); ++step) {
    const plan::StepMemory& now = profile.steps[step];
    const bool last = step + 1 == profile.steps.size();
    memory.steps.push_back({.peak = now.live + now.results + now.workspace,
                            .after = last ? profile.outputs : profile.steps[step + 1].live});
  }
  return memory;
}

double transfer_s(Bytes bytes, const device::sim::Card& card) {
  if (bytes == 0) return 0;
  return card.copy_latency_s + static_cast<double>(bytes) / card.link_pinned_bytes_per_s;
}

/// Inputs and results exist as the caller's and in buffers that may be twice as large as they must be; while
/// files are read and written, once more; and padded to buckets.
constexpr Bytes kHostCopies = 5;

/// Time of each step as the card's description has it.
std::vector<plan::StepCost> described_costs(const ModelData& model, const graph::ShapeTable& sizes,
                                            const graph::StorageTable& storages,
                                            const device::sim::Card& card) {
  const graph::Graph& graph = model.program().graph;
  const std::vector<double> kernels = plan::step_seconds(graph, sizes, storages, card.rates);
  std::vector<plan::StepCost> costs;
  for (std::size_t step = 0; step < graph.nodes.size(); ++step) {
    const bool launches = !exec::is_skipped(graph.nodes[step]) && !exec::is_symbolic(graph.nodes[step]);
    costs.push_back({.host_s = launches ? card.launch_s : 0,
                     .kernel_s = kernels[step],
                     .waits = launches && graph::synchronises(graph.nodes[step].op_name())});
  }
  for (const HostLookup& lookup : model.host_lookups()) {
    const auto& rows = sizes.metas[graph.nodes[lookup.step].produced().front()];
    const Bytes bytes = rows ? graph::storage_span_bytes(*rows).value_or(0) : 0;
    costs[lookup.step] = {.host_s = card.launch_s, .kernel_s = 0, .upload_s = transfer_s(bytes, card)};
    if (!lookup.indices_are_input) {  // they are fetched first
      costs[lookup.step].upload_s += card.copy_latency_s;
      costs[lookup.step].waits = true;
    }
  }
  return costs;
}

/// The tensors that travel with a job, in seconds.
void add_transfers(ShapePlan& shape, const ModelData& model, const graph::ShapeTable& sizes,
                   const graph::StorageTable& storages, const device::sim::Card& card) {
  const auto bytes = [&](graph::ValueId value) -> Bytes {
    if (value == graph::kNoValue || !sizes.metas[value]) return 0;
    return graph::storage_span_bytes(*sizes.metas[value]).value_or(0);
  };
  const auto seconds = [&](graph::ValueId value) { return transfer_s(bytes(value), card); };
  const graph::Graph& graph = model.program().graph;
  for (const graph::GraphInput& input : graph.inputs) {
    if (input.kind != graph::InputKind::user || input.value == graph::kNoValue) continue;
    shape.host_bytes += kHostCopies * bytes(input.value);
    const graph::StorageId storage = storages.of_value[input.value];
    if (storage == graph::kNoStorage || !storages.storages[storage].used) continue;
    const double travels = seconds(input.value);
    shape.inputs_s += travels;
    if (travels > 0) shape.inputs_host_s += card.launch_s;
  }
  if (shape.inputs_s > 0) shape.inputs_s += card.launch_s;  // of the first; the host submits others meanwhile
  for (const std::size_t index : model.user_outputs()) {
    const auto* ref = std::get_if<graph::Ref>(&graph.outputs[index].value);
    const double travels = ref == nullptr ? 0 : seconds(ref->value);
    if (ref != nullptr) shape.host_bytes += kHostCopies * bytes(ref->value);
    shape.outputs_s += travels;
    if (travels > 0) shape.outputs_host_s = card.launch_s;  // of the first, as above
  }
  for (const HostLookup& lookup : model.host_lookups())
    shape.host_bytes += kHostCopies * bytes(graph.nodes[lookup.step].produced().front());
}

}  // namespace

ShapePlan make_shape_plan(const ModelData& model, const graph::InputDescriptions& inputs,
                          const device::sim::Card& card, const LearnedShapes& learned, int threads) {
  const graph::Graph& graph = model.program().graph;
  ShapePlan shape;
  shape.inputs = inputs;
  shape.text = shape_text(model, inputs);
  const graph::ShapeTable sizes =
      graph::evaluate_shapes(model.program(), graph::bind_inputs(model.program(), inputs));
  const graph::StorageTable storages = graph::analyse_storages(graph, sizes, model.file_of_input());
  const plan::ActivationProfile profile = plan::profile_activations(graph, sizes, storages, threads);
  shape.bounded = profile.bounded;
  shape.exact_sizes = sizes.exact && profile.bounded;
  shape.activation_bytes = profile.layout;
  shape.live_bytes = profile.activation_peak();
  shape.peak_bytes = std::max(profile.peak(), profile.layout);
  shape.described = {bounded_memory(profile), described_costs(model, sizes, storages, card)};
  shape.profile = shape.described;
  for (const plan::StepMemory& step : profile.steps) shape.result_bytes.push_back(step.results);
  add_transfers(shape, model, sizes, storages, card);
  if (!graph.nodes.empty()) {
    const graph::Node& node = graph.nodes[profile.peak_step()];
    shape.largest_step = graph::print_node(model.program(), graph, node);
  }
  shape.learned_key = LearnedShapes::key(model.fingerprint(), shape.text, card.name, threads);
  shape.basis = LearnedShapes::basis(shape.described);
  const auto measured = shape.exact_sizes ? learned.find(shape.learned_key, shape.described) : std::nullopt;
  if (measured) {
    shape.peak_bytes = measured->peak;
    shape.profile = measured->profile;
    shape.activation_bytes = std::min(shape.activation_bytes, measured->peak);
    shape.live_bytes = std::min(shape.live_bytes, measured->peak);
    shape.state = WorkspaceState::learned;
  }
  for (const plan::StepCost& cost : shape.profile.costs) shape.total_step_s += cost.kernel_s;
  return shape;
}

}  // namespace lowtide::detail
