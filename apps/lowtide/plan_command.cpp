#include <cstdio>

#include "lowtide/commands.hpp"
#include "lowtide/error.hpp"
#include "lowtide/named_tensors.hpp"
#include "lowtide/plan_text.hpp"
#include "lowtide/report.hpp"

namespace lowtide::app {
namespace {

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

}  // namespace

int plan(const PlanCommand& command) {
  require_writable(command.common.report);
  const Model model = Model::open(command.model, command.common.program);
  Session session(command.common.session);
  const ModelHandle handle = session.add(model);
  const InputShapes shapes = shapes_for(model, command.shapes);
  Report report = session_report(session);
  report.models.push_back({.name = model.name(), .weight_bytes = model.weight_bytes()});
  const auto write = [&] {
    if (command.common.report) write_report(*command.common.report, report);
  };
  try {
    report.plans = {session.plan(handle, shapes)};
  } catch (const PlanInfeasible& e) {
    report.min_cap_bytes = e.min_cap();
    report.cap_bytes = command.common.session.vram_cap;
    write();
    throw;
  } catch (const InputError& e) {  // the shapes came from the command line
    throw UsageError(std::string("--shape: ") + e.what());
  }
  report.cap_bytes = session.cap_bytes();
  write();
  if (command.common.quiet) return 0;
  std::fputs(plan_table(report.plans.front()).c_str(), stdout);
  if (const auto choice = session.low_vram_choice()) std::printf("  %s\n", low_vram_text(*choice).c_str());
  const std::vector<CapPoint> curve = session.cap_curve();
  if (!curve.empty()) std::fputs(curve_table(curve).c_str(), stdout);
  return 0;
}

}  // namespace lowtide::app
