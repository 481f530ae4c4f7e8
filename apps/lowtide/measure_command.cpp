#include <ATen/Context.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "base_torch/dtype_convert.hpp"
#include "lowtide/commands.hpp"
#include "lowtide/error.hpp"
#include "lowtide/interrupt.hpp"
#include "lowtide/named_tensors.hpp"
#include "lowtide/plan_text.hpp"
#include "lowtide/report.hpp"
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

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Least-squares slope per run and the half width of its 95 % confidence interval.
std::pair<double, double> slope(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  if (values.size() < 3) return {0, 0};
  const double mean_x = (n - 1) / 2;
  const double mean_y = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double xy = 0;
  double xx = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double dx = static_cast<double>(i) - mean_x;
    xy += dx * (values[i] - mean_y);
    xx += dx * dx;
  }
  const double a = xy / xx;
  double rest = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double error = values[i] - mean_y - a * (static_cast<double>(i) - mean_x);
    rest += error * error;
  }
  return {a, 1.96 * std::sqrt(rest / (n - 2) / xx)};
}

void print_row(const char* name, const std::string& text) {
  std::printf("  %-26s %s\n", name, text.c_str());
}

void print_summary(const Session& session, const std::vector<JobStats>& jobs, const JobStats& first) {
  std::vector<double> wall;
  std::vector<double> after;
  Bytes peak = 0;
  Bytes allocs = 0;
  for (const JobStats& job : jobs) {
    wall.push_back(job.wall_s);
    if (job.peak_bytes) peak = std::max(peak, *job.peak_bytes);
    if (job.used_after_bytes) after.push_back(static_cast<double>(*job.used_after_bytes));
    allocs = std::max(allocs, job.driver_allocs);
  }
  print_row("first run", std::to_string(first.wall_s * 1e3) + " ms");
  print_row("later runs, median", std::to_string(median(wall) * 1e3) + " ms");
  if (jobs.front().modelled_s)
    print_row("modelled, simulated card", std::to_string(*jobs.back().modelled_s * 1e3) + " ms");
  if (!after.empty()) {
    print_row("stable peak", std::to_string(peak) + " (" + format_bytes(peak) + ")");
    const auto [bytes, confidence] = slope(after);
    print_row("slope of device use",
              std::to_string(bytes) + " +- " + std::to_string(confidence) + " bytes a run");
    print_row("driver allocations a run", std::to_string(allocs));
    if (const SessionStats stats = session.stats(); stats.reserved_peak_bytes)
      print_row("fragmentation at the peak",
                std::to_string(100.0 - 100.0 * static_cast<double>(*stats.peak_bytes) /
                                           static_cast<double>(*stats.reserved_peak_bytes)) +
                    " %");
    print_row("copied to the device a run", format_bytes(jobs.back().h2d_bytes) + " in " +
                                                std::to_string(jobs.back().h2d_copies) + " copies");
  }
}

}  // namespace

int measure(const MeasureCommand& command) {
  require_writable(command.common.report, "report");
  const Model model = Model::open(command.model, command.common.program);
  Session session(command.common.session);
  announce_low_vram(session);
  const ModelHandle handle = session.add(model);
  const InterruptGuard interrupt(session);
  const std::vector<at::Tensor> inputs =
      command.input ? read_inputs(model, JobInputs(*command.input)) : sample_tensors(model);

  Report report = session_report(session);
  JobStats first;
  std::vector<JobStats> jobs;
  for (int i = 0; i < kWarmUpRuns + command.runs; ++i) {
    session.run(handle, inputs);
    if (i == 0) {
      first = session.last_job();
      announce_choice(session);
    }
    if (i >= kWarmUpRuns) jobs.push_back(session.last_job());
  }
  session.remember();
  if (!command.common.quiet) {
    std::printf("%s: %d runs after %d for warm-up\n", model.name().c_str(), command.runs, kWarmUpRuns);
    print_summary(session, jobs, first);
  }
  report.cap_bytes = session.cap_bytes();
  report.plans = session.planned();
  report.stats = session.stats();
  report.models.push_back({.name = model.name(), .weight_bytes = model.weight_bytes(), .runs = jobs.size()});
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    report.jobs.push_back({.id = std::to_string(i), .status = "ok", .stats = jobs[i]});
    report.wall_s += jobs[i].wall_s;
  }
  if (command.common.report) write_report(*command.common.report, report);
  return 0;
}

}  // namespace lowtide::app
