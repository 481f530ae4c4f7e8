#include "session/shape_plan.hpp"

#include <numeric>

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

}  // namespace

ShapePlan make_shape_plan(const ModelData& model, const graph::InputDescriptions& inputs,
                          const device::sim::Card& card, const LearnedPeaks& learned, int threads) {
  const graph::Graph& graph = model.program().graph;
  ShapePlan shape;
  shape.inputs = inputs;
  shape.text = shape_text(model, inputs);
  const graph::ShapeTable sizes =
      graph::evaluate_shapes(model.program(), graph::bind_inputs(model.program(), inputs));
  const graph::StorageTable storages = graph::analyse_storages(graph, sizes, model.file_of_input());
  const plan::ActivationProfile profile = plan::profile_activations(graph, sizes, storages, threads);
  shape.bounded = profile.bounded;
  shape.activation_bytes = profile.activation_peak();
  shape.peak_bytes = profile.peak();
  if (!graph.nodes.empty()) {
    const graph::Node& node = graph.nodes[profile.peak_step()];
    shape.largest_step = graph::print_node(model.program(), graph, node);
  }
  shape.learned_key = LearnedPeaks::key(model.fingerprint(), shape.text, card.name, threads);
  if (const auto peak = learned.find(shape.learned_key)) {
    shape.peak_bytes = *peak;
    shape.activation_bytes = std::min(shape.activation_bytes, *peak);
    shape.state = WorkspaceState::learned;
  }
  shape.step_s = plan::step_seconds(graph, sizes, storages, card.rates);
  shape.total_step_s = std::accumulate(shape.step_s.begin(), shape.step_s.end(), 0.0);
  return shape;
}

plan::ResidencyProblem residency_problem(const ModelData& model, const ShapePlan& shape,
                                         const device::sim::Card& card) {
  plan::ResidencyProblem problem;
  problem.units = model.packing().units;
  problem.kernel_s = shape.step_s;
  problem.launch_s = card.launch_s;
  problem.link = {.bytes_per_s = card.link_pinned_bytes_per_s,
                  .latency_s = card.copy_latency_s,
                  .launch_s = card.launch_s};
  return problem;
}

}  // namespace lowtide::detail
