#include <ATen/Context.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <cstdio>

#include "base/host_facts.hpp"
#include "base_torch/dtype_convert.hpp"
#include "lowtide/commands.hpp"
#include "lowtide/error.hpp"
#include "lowtide/interrupt.hpp"
#include "lowtide/named_tensors.hpp"
#include "lowtide/plan_text.hpp"
#include "lowtide/report.hpp"
#include "lowtide/steady_state.hpp"
#include "session/model_data.hpp"

namespace lowtide::app {
namespace {

constexpr int kWarmUpRuns = 50;
constexpr std::uint64_t kSeed = 0;

/// The archive's sample shapes: zeros for integers (always valid indices), seeded normals for the rest.
std::vector<at::Tensor> sample_tensors(const Model& model) {
  const std::optional<InputShapes> shapes = model.sample_shapes();
  if (!shapes) throw UsageError("'" + model.path() + "' does not tell its sample shapes: give an INPUT file");
  const detail::ModelData& data = model.data();
  at::manual_seed(kSeed);
  std::vector<at::Tensor> tensors(shapes->size());
  for (std::size_t i = 0; i < shapes->size(); ++i) {
    const graph::GraphInput& input = data.program().graph.inputs[data.user_inputs()[i]];
    if (!(*shapes)[i] || input.kind == graph::InputKind::constant || input.value == graph::kNoValue) continue;
    const graph::Value& value = data.program().graph.values[input.value];
    const InputShape& shape = *(*shapes)[i];
    if (value.kind != graph::ValueKind::tensor) {
      tensors[i] = at::zeros({}, at::kLong).fill_(shape.integer.value_or(0));
      continue;
    }
    const at::ScalarType type = to_scalar_type(value.meta.dtype);
    const bool normal = at::isFloatingType(type) || at::isComplexType(type);
    tensors[i] = normal ? at::randn(shape.sizes).to(type) : at::zeros(shape.sizes, type);
  }
  return tensors;
}

/// What was measured in one session, as a page and as a report.
struct Setting {
  Measured measured;
  Report report;
};

Setting run_setting(const MeasureCommand& command, const SessionOptions& options, const Model& model,
                    const std::vector<at::Tensor>& inputs) {
  Session session(options);
  announce_low_vram(session);
  const ModelHandle handle = session.add(model);
  const InterruptGuard interrupt(session);
  Measured measured{.after_job = options.low_vram ? AfterJob::release : options.after_job};
  for (int i = 0; i < kWarmUpRuns + command.runs; ++i) {
    session.run(handle, inputs);
    if (i == 0) {
      measured.first = session.last_job();
      announce_choice(session);
    }
    if (i < kWarmUpRuns) continue;
    measured.jobs.push_back(session.last_job());
    if (const auto bytes = host_resident_bytes()) measured.host_bytes.push_back(static_cast<double>(*bytes));
  }
  session.remember();
  measured.stats = session.stats();
  measured.cap_bytes = session.cap_bytes();
  Report report = session_report(session);
  report.plans = session.planned();
  report.stats = measured.stats;
  report.models.push_back(
      {.name = model.name(), .weight_bytes = model.weight_bytes(), .runs = measured.jobs.size()});
  for (std::size_t i = 0; i < measured.jobs.size(); ++i) {
    report.jobs.push_back({.id = std::to_string(i), .status = "ok", .stats = measured.jobs[i]});
    report.wall_s += measured.jobs[i].wall_s;
  }
  if (!report.plans.empty()) {
    measured.plan = report.plans.front();
    measured.curve = session.cap_curve();
  }
  return {std::move(measured), std::move(report)};
}

/// What the first setting measures would change the plan of the second: both start from the same knowledge.
void learn(const SessionOptions& options, const Model& model, const std::vector<at::Tensor>& inputs) {
  constexpr int kRuns = 2;  // until everything about a shape is known
  Session session(options);
  const ModelHandle handle = session.add(model);
  for (int i = 0; i < kRuns; ++i) session.run(handle, inputs);
  session.remember();
}

void print_page(const MeasureCommand& command, const Model& model, const std::vector<Measured>& settings) {
  std::printf("%s: %d runs after %d for warm-up\n", model.name().c_str(), command.runs, kWarmUpRuns);
  if (settings.size() > 1) std::printf("  %-26s %-26s %s\n", "", "as given", settings.back().setting.c_str());
  for (const MeasuredRow& row : measured_rows(settings)) {
    std::printf("  %-26s", row.name.c_str());
    for (std::size_t i = 0; i < row.values.size(); ++i) {
      const bool last = i + 1 == row.values.size() || row.values[i + 1].empty();
      std::printf(last ? " %s" : " %-26s", row.values[i].c_str());
    }
    std::printf("\n");
  }
  for (const Measured& setting : settings) {
    for (const std::string& line : advice(setting))
      std::printf("%s%s: %s\n", settings.size() > 1 ? "  with " : "  advice",
                  settings.size() > 1 ? setting.setting.c_str() : "", line.c_str());
  }
}

}  // namespace

int measure(const MeasureCommand& command) {
  require_writable(command.common.report, "report");
  const Model model = Model::open(command.model, command.common.program);
  const std::vector<at::Tensor> inputs =
      command.input ? read_inputs(model, JobInputs(*command.input)) : sample_tensors(model);
  if (command.against) learn(command.common.session, model, inputs);
  Setting given = run_setting(command, command.common.session, model, inputs);
  std::vector<Measured> settings{std::move(given.measured)};
  settings.front().setting = "the options as given";
  if (command.against) {
    settings.push_back(run_setting(command, *command.against, model, inputs).measured);
    settings.back().setting = command.against_setting;
  }
  if (!command.common.quiet) print_page(command, model, settings);
  if (command.common.report) write_report(*command.common.report, given.report);
  return 0;
}

}  // namespace lowtide::app
