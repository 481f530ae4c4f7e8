// Plans as users see them.
#include <algorithm>

#include "graph/graph_text.hpp"
#include "session/ram_plan.hpp"

namespace lowtide::detail {
namespace {

constexpr std::size_t kShownStalls = 5;

std::vector<PlannedWeights> planned_weights(const PlannedModel& model, bool keeps) {
  const Variant& variant = *model.variant;
  std::vector<PlannedWeights> weights;
  for (const plan::Unit& unit : variant.problem.units)
    weights.push_back({.name = unit.name, .bytes = unit.bytes, .copies_per_pass = 0});
  for (std::size_t i = 0; i < model.residency.fetches.size(); ++i) {
    const plan::Fetch& fetch = model.residency.fetches[i];
    PlannedWeights& unit = weights[fetch.unit];
    unit.resident = fetch.resident && keeps && !variant.problem.units[fetch.unit].state;
    if (!unit.resident) ++unit.copies_per_pass;
    unit.stall_s += model.schedule.fetch_stall_s[i];
  }
  return weights;
}

std::vector<PlannedStall> longest_stalls(const PlannedModel& model) {
  const graph::Program& program = model.data->program();
  std::map<plan::StepId, double> by_step;
  for (std::size_t i = 0; i < model.residency.fetches.size(); ++i) {
    const plan::StepId position = model.residency.fetches[i].first_use;
    if (model.schedule.fetch_stall_s[i] > 0)
      by_step[model.variant->walk.positions[position].step] += model.schedule.fetch_stall_s[i];
  }
  std::vector<PlannedStall> stalls;
  for (const auto& [step, seconds] : by_step)
    stalls.push_back({graph::print_node(program, program.graph, program.graph.nodes[step]), seconds});
  std::stable_sort(stalls.begin(), stalls.end(),
                   [](const PlannedStall& a, const PlannedStall& b) { return a.seconds > b.seconds; });
  if (stalls.size() > kShownStalls) stalls.resize(kShownStalls);
  return stalls;
}

}  // namespace

PlanSummary summarise_in_place(const PlannedModel& model, const ShapePlan& shape) {
  PlanSummary summary;
  summary.model = model.data->path().stem().string();
  summary.shapes = shape.text;
  summary.bounded = shape.bounded;
  summary.data_dependent = !shape.exact_sizes;
  summary.activation_bytes = shape.activation_bytes;
  summary.activation_lower_bound_bytes = shape.live_bytes;
  summary.workspace_bytes = shape.peak_bytes - std::min(shape.peak_bytes, shape.activation_bytes);
  summary.workspace_state = shape.state;
  summary.largest_step = shape.largest_step;
  return summary;
}

PlanSummary summarise(const SessionPlan& plan, const PlannedModel& model, const ShapePlan& shape) {
  PlanSummary summary = summarise_in_place(model, shape);
  const Variant& variant = *model.variant;
  const bool keeps = plan.kept_bytes > 0;
  Bytes job_bytes = shape.peak_bytes;
  if (variant.walk.is_wave()) {
    job_bytes = plan::wave_bytes(shape.profile.memory, variant.walk, variant.spill);
    summary.activation_bytes = job_bytes - std::min(job_bytes, summary.workspace_bytes);
    summary.activation_lower_bound_bytes = summary.activation_bytes;
  } else if (variant.split_weights > 0) {
    job_bytes = variant.job_bytes;
  }
  summary.workspace_bytes = job_bytes - std::min(job_bytes, summary.activation_bytes);
  summary.exact = variant.split_weights == 0;
  summary.context_bytes = plan.context_bytes;
  summary.kept_bytes = plan.kept_bytes;
  summary.state_bytes = plan.state_bytes;
  summary.peak_bytes = plan.context_bytes + plan.state_bytes + plan.slab_bytes + job_bytes;
  summary.min_cap_bytes = plan.min_cap_bytes;
  summary.min_cap_split_bytes = plan.min_cap_split_bytes;
  summary.resident_bytes = model.residency.resident_bytes;
  summary.streamed_bytes_per_pass = model.residency.streamed_bytes;
  summary.wave = variant.walk.jobs;
  summary.groups = static_cast<int>(variant.walk.groups.size());
  summary.spilled_bytes = variant.spilled_bytes;
  summary.split_weights = variant.split_weights;
  summary.predicted_s = model.per_job_s;
  summary.compute_s = model.schedule.compute_s / variant.walk.jobs;
  summary.copy_s = model.schedule.copy_s / variant.walk.jobs;
  summary.stall_s = model.residency.stall_s / variant.walk.jobs;
  summary.weights = planned_weights(model, keeps);
  for (const std::uint32_t table : model.data->host_tables())
    summary.host_lookup_bytes += model.data->weights().files[table].bytes;
  summary.stalls = longest_stalls(model);
  if (plan.ram) {
    for (const auto& [index, planned] : plan.models) {
      if (&planned == &model) add_ram(summary, *plan.ram, plan.ram->parts.at(index));
    }
    for (const plan::Fetch& fetch : model.residency.fetches) {
      const plan::Unit& unit = variant.problem.units[fetch.unit];
      if (unit.source_bytes_per_s > 0 && !(fetch.resident && keeps && !unit.state))
        summary.disk_bytes_per_pass += unit.bytes;
    }
  }
  return summary;
}

}  // namespace lowtide::detail
