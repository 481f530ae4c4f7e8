#include "plan/activation_profile.hpp"

#include <algorithm>

#include "base/checked_math.hpp"
#include "plan/memory_layout.hpp"
#include "plan/workspace_bound.hpp"

namespace lowtide::plan {
namespace {

using graph::ConcreteMeta;
using graph::Node;
using graph::ShapeView;
using graph::StorageOrigin;
using graph::ValueId;

bool is_contiguous(const ConcreteMeta& meta) {
  std::int64_t expected = 1;
  for (std::size_t d = meta.sizes.size(); d-- > 0;) {
    if (meta.sizes[d] != 1 && meta.strides[d] != expected) return false;
    expected *= meta.sizes[d];
  }
  return true;
}

/// The tensors around one node, as cost and workspace rules want them.
struct NodeShapes {
  std::vector<Operand> operands;
  std::vector<ShapeView> inputs;
  std::vector<ShapeView> outputs;
  bool view = false;  // makes no storage and writes nothing
};

NodeShapes shapes_around(const Node& node, const graph::ShapeTable& shapes,
                         const graph::StorageTable& storages, std::size_t step) {
  NodeShapes around;
  std::vector<ValueId> read;
  for (const graph::Argument& argument : node.arguments) {
    if (argument.name != "out") append_read_values(argument.value, read);  // that one is only written
  }
  for (const ValueId value : read) {
    const auto& meta = shapes.metas[value];
    if (!meta) continue;
    const ShapeView shape{meta->dtype, meta->sizes};
    const graph::StorageId storage = storages.of_value[value];
    const bool weight =
        storage != graph::kNoStorage && storages.storages[storage].origin == StorageOrigin::weight;
    around.inputs.push_back(shape);
    around.operands.push_back({shape, weight, is_contiguous(*meta)});
  }
  around.view = node.traits.writes.empty();
  for (const ValueId value : node.produced()) {
    const auto& meta = shapes.metas[value];
    if (!meta) continue;
    around.outputs.push_back({meta->dtype, meta->sizes});
    const graph::StorageId storage = storages.of_value[value];
    if (storage != graph::kNoStorage && storages.storages[storage].origin == StorageOrigin::produced &&
        storages.storages[storage].first == step)
      around.view = false;
  }
  return around;
}

}  // namespace

Bytes ActivationProfile::activation_peak() const {
  Bytes most = inputs;
  for (const StepMemory& step : steps) most = std::max(most, step.live + step.results);
  return most;
}

Bytes ActivationProfile::peak() const {
  Bytes most = inputs;
  for (const StepMemory& step : steps) most = std::max(most, step.live + step.results + step.workspace);
  return most;
}

StepId ActivationProfile::peak_step() const {
  StepId best = 0;
  Bytes most = 0;
  for (StepId i = 0; i < steps.size(); ++i) {
    const Bytes need = steps[i].live + steps[i].results + steps[i].workspace;
    if (need > most) {
      most = need;
      best = i;
    }
  }
  return best;
}

ActivationProfile profile_activations(const graph::Graph& graph, const graph::ShapeTable& shapes,
                                      const graph::StorageTable& storages, int threads) {
  ActivationProfile profile;
  profile.bounded = shapes.bounded;
  const std::size_t count = graph.nodes.size();
  profile.steps.resize(count);
  std::vector<std::int64_t> change(count + 1, 0);
  std::vector<Lifetime> lives;
  for (const graph::Storage& storage : storages.storages) {
    if (storage.origin == StorageOrigin::weight) continue;
    if (!storage.size_known) profile.bounded = false;
    const Bytes bytes = round_up(storage.bytes, kGranule);
    if (storage.origin == StorageOrigin::user_input) {
      if (!storage.used) continue;  // never copied to the device
      profile.inputs += bytes;
      lives.push_back({bytes, 0, static_cast<std::uint32_t>(std::min<std::size_t>(storage.last, count)) + 1});
      if (storage.last >= count) profile.outputs += bytes;
      if (count > 0) {
        change[0] += static_cast<std::int64_t>(bytes);
        if (storage.last + 1 < count) change[storage.last + 1] -= static_cast<std::int64_t>(bytes);
      }
    } else if (storage.first < count) {
      profile.steps[storage.first].results += bytes;
      lives.push_back(
          {bytes, storage.first, static_cast<std::uint32_t>(std::min<std::size_t>(storage.last, count)) + 1});
      if (storage.last >= count) profile.outputs += bytes;
      // Alive "before and during" begins with the step after the one that makes it.
      if (storage.last > storage.first && storage.first + 1 < count) {
        change[storage.first + 1] += static_cast<std::int64_t>(bytes);
        if (storage.last + 1 < count) change[storage.last + 1] -= static_cast<std::int64_t>(bytes);
      }
    }
  }
  profile.layout = lay_out(lives).bytes;
  std::int64_t live = 0;
  for (std::size_t step = 0; step < count; ++step) {
    live += change[step];
    profile.steps[step].live = static_cast<Bytes>(live);
    const NodeShapes around = shapes_around(graph.nodes[step], shapes, storages, step);
    if (graph.nodes[step].is_operator())
      profile.steps[step].workspace =
          workspace_bound(graph.nodes[step].op_name(), around.operands, around.outputs, around.view, threads);
  }
  return profile;
}

std::vector<double> step_seconds(const graph::Graph& graph, const graph::ShapeTable& shapes,
                                 const graph::StorageTable& storages, const graph::ComputeRates& rates) {
  std::vector<double> seconds;
  seconds.reserve(graph.nodes.size());
  for (std::size_t step = 0; step < graph.nodes.size(); ++step) {
    const Node& node = graph.nodes[step];
    const NodeShapes around = shapes_around(node, shapes, storages, step);
    const bool computes = node.is_operator() && !around.outputs.empty();
    seconds.push_back(
        computes ? op_seconds(op_cost(node.op_name(), around.inputs, around.outputs, around.view), rates)
                 : 0.0);
  }
  return seconds;
}

}  // namespace lowtide::plan
