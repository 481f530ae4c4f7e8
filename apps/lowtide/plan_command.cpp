#include <algorithm>
#include <cstdio>
#include <utility>

#include "lowtide/commands.hpp"
#include "lowtide/curve_svg.hpp"
#include "lowtide/error.hpp"
#include "lowtide/named_tensors.hpp"
#include "lowtide/plan_page.hpp"
#include "lowtide/plan_text.hpp"
#include "lowtide/report.hpp"

namespace lowtide::app {
namespace {

/// With --wave auto: enough jobs for the planner to find the wave that suits a long batch.
constexpr int kManyJobs = 32;

/// The archive's own shapes, replaced where the user gives others.
InputShapes shapes_for(const Model& model, const std::vector<ShapeOption>& options) {
  std::optional<InputShapes> shapes = model.sample_shapes();
  if (!shapes) {
    if (options.empty())
      throw UsageError("'" + model.path() +
                       "' does not tell its sample shapes: give one --shape NAME=1x3x640x640 per input");
    shapes = InputShapes(model.input_names().size());
  }
  std::vector<std::string> names;
  for (const ShapeOption& option : options) names.push_back(option.name);
  std::vector<std::size_t> positions;
  try {
    positions = input_positions(model, names);
  } catch (const InputError& e) {
    throw UsageError(std::string("--shape: ") + e.what());
  }
  for (std::size_t i = 0; i < options.size(); ++i) {
    std::optional<InputShape>& shape = (*shapes)[positions[i]];
    if (shape && shape->integer && options[i].sizes.size() == 1) {
      shape->integer = options[i].sizes.front();  // an integer input: its value, not a size
    } else {
      shape = InputShape{options[i].sizes};
    }
  }
  return *shapes;
}

/// The one that needs most; on the cpu the one with the largest activations.
const PlanSummary& largest(const std::vector<PlanSummary>& plans) {
  return *std::max_element(plans.begin(), plans.end(), [](const PlanSummary& a, const PlanSummary& b) {
    return std::pair(a.peak_bytes, a.activation_bytes) < std::pair(b.peak_bytes, b.activation_bytes);
  });
}

}  // namespace

int plan(const PlanCommand& command) {
  require_writable(command.common.report, "report");
  require_writable(command.svg, "picture");
  const SessionOptions& options = command.common.session;
  const Model model = Model::open(command.model, command.common.program);
  Session session(options);
  announce_low_vram(session);
  const ModelHandle handle = session.add(model, {.shape_buckets = command.common.shape_buckets});
  const InputShapes shapes = shapes_for(model, command.shapes);
  Report report = session_report(session);
  report.models.push_back({.name = model.name(), .weight_bytes = model.weight_bytes()});
  const auto write = [&] {
    if (command.common.report) write_report(*command.common.report, report);
  };
  try {
    // Equal jobs come back as one summary.
    const auto jobs = static_cast<std::size_t>(options.wave == 0 ? kManyJobs : options.wave);
    std::vector<PlannedJob> planned;
    if (!command.shapes.empty()) session.padded_shapes(handle, shapes);  // checks what the user gave
    for (const InputShapes& shape : session.bucket_shapes(handle, shapes))
      planned.insert(planned.end(), jobs, {handle, shape});
    report.plans = session.plan_jobs(planned);
  } catch (const PlanInfeasible& e) {
    refuse(report, e, options.vram_cap);
    write();
    throw;
  } catch (const InputError& e) {  // the shapes came from the command line
    throw UsageError(std::string("--shape: ") + e.what());
  }
  report.cap_bytes = session.cap_bytes();
  write();
  if (command.common.quiet && !command.svg) return 0;
  const PlanPage page{
      .plan = largest(report.plans),
      .buckets = command.common.shape_buckets.empty() ? std::vector<PlanSummary>() : report.plans,
      .device = report.device,
      .cap = report.cap_bytes,
      .curve = session.cap_curve(),
      .low_vram = session.low_vram_choice(),
      .wave_asked = options.wave,
      .verbose = command.common.verbose};
  if (command.svg) write_text(*command.svg, curve_svg(page), "picture");
  if (!command.common.quiet) std::fputs(plan_page(page).c_str(), stdout);
  return 0;
}

}  // namespace lowtide::app
