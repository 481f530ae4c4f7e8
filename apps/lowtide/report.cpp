#include "lowtide/report.hpp"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/host_facts.hpp"
#include "lowtide/error.hpp"

namespace lowtide::app {
namespace {

using nlohmann::ordered_json;

template <class T>
ordered_json or_null(const std::optional<T>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json plan_json(const PlanSummary& plan) {
  const bool capped = plan.peak_bytes.has_value();
  const auto only_capped = [&](Bytes value) { return capped ? ordered_json(value) : ordered_json(nullptr); };
  return {{"model", plan.model},
          {"shapes", plan.shapes},
          {"exact", plan.exact},
          {"bounded", plan.bounded},
          {"peak_bytes", or_null(plan.peak_bytes)},
          {"min_cap_bytes", or_null(plan.min_cap_bytes)},
          {"min_cap_split_bytes", or_null(plan.min_cap_split_bytes)},
          {"context_bytes", only_capped(plan.context_bytes)},
          {"library_bytes", only_capped(0)},
          {"kept_bytes", only_capped(plan.kept_bytes)},
          {"resident_bytes", only_capped(plan.resident_bytes)},
          {"streamed_bytes_per_pass", only_capped(plan.streamed_bytes_per_pass)},
          {"activation_bytes", plan.activation_bytes},
          {"activation_lower_bound_bytes", plan.activation_lower_bound_bytes},
          {"workspace_bytes", plan.workspace_bytes},
          {"workspace_state", plan.workspace_state == WorkspaceState::bound ? "bound" : "learned"},
          {"wave", plan.wave},
          {"predicted_s", or_null(plan.predicted_s)},
          {"min_ram_cap_bytes", plan.ram ? ordered_json(plan.ram->min_cap_bytes) : ordered_json(nullptr)},
          {"ram_weight_bytes", plan.ram ? ordered_json(plan.ram->weight_bytes) : ordered_json(nullptr)},
          {"disk_bytes_per_pass", plan.ram ? ordered_json(plan.disk_bytes_per_pass) : ordered_json(nullptr)}};
}

/// Where no plan was possible, the caps with which one would be are all that is known.
ordered_json empty_plan_json(const Report& report) {
  ordered_json plan = plan_json({});
  for (auto& [key, value] : plan.items()) value = nullptr;
  plan["min_cap_bytes"] = or_null(report.min_cap_bytes);
  plan["min_cap_split_bytes"] = or_null(report.min_cap_split_bytes);
  plan["min_ram_cap_bytes"] = or_null(report.min_ram_cap_bytes);
  return plan;
}

ordered_json job_json(const ReportedJob& job) {
  const JobStats stats = job.stats.value_or(JobStats{});
  const bool ran = job.stats.has_value();
  return {{"id", job.id},
          {"status", job.status},
          {"error", job.error.empty() ? ordered_json(nullptr) : ordered_json(job.error)},
          {"wall_s", ran ? ordered_json(stats.wall_s) : ordered_json(nullptr)},
          {"modelled_s", or_null(stats.modelled_s)},
          {"peak_bytes", or_null(stats.peak_bytes)},
          {"used_after_bytes", or_null(stats.used_after_bytes)},
          {"h2d_bytes", ran ? ordered_json(stats.h2d_bytes) : ordered_json(nullptr)},
          {"plan_hits", or_null(stats.plan_hits)},
          {"plan_misses", or_null(stats.plan_misses)}};
}

/// Requests for memory of all jobs that ran: from planned places, and others.
struct Requests {
  std::optional<std::uint64_t> hits;
  std::optional<std::uint64_t> misses;
};

Requests count_requests(const Report& report) {
  Requests all;
  for (const ReportedJob& job : report.jobs) {
    if (!job.stats || !job.stats->plan_hits || !job.stats->plan_misses) continue;
    all.hits = all.hits.value_or(0) + *job.stats->plan_hits;
    all.misses = all.misses.value_or(0) + *job.stats->plan_misses;
  }
  return all;
}

/// Driver allocations of a job, at most, among jobs that are not the first of their shape.
ordered_json steady_allocs(const Report& report) {
  if (report.device.kind == "cpu") return nullptr;
  Bytes most = 0;
  for (const ReportedJob& job : report.jobs) {
    if (job.stats && !job.stats->first_of_shape) most = std::max(most, job.stats->driver_allocs);
  }
  return most;
}

ordered_json measured_json(const Report& report) {
  const Requests requests = count_requests(report);
  const SessionStats stats = report.stats.value_or(SessionStats{});
  Bytes weights = 0;
  for (const ReportedModel& model : report.models) weights += model.weight_bytes;
  return {{"context_bytes", or_null(stats.context_bytes)},
          {"kept_bytes", or_null(stats.kept_bytes)},
          {"library_bytes", or_null(stats.library_bytes)},
          {"peak_bytes", or_null(stats.peak_bytes)},
          {"reserved_peak_bytes", or_null(stats.reserved_peak_bytes)},
          {"h2d_bytes", stats.h2d_bytes},
          {"h2d_copies", stats.h2d_copies},
          {"d2h_bytes", stats.d2h_bytes},
          {"disk_read_bytes", or_null(stats.disk_read_bytes)},
          {"weight_bytes", weights},
          {"pinned_bytes", stats.pinned_bytes},
          {"host_peak_bytes", host_peak_bytes()},
          {"device_allocs_steady", steady_allocs(report)},
          {"plan_hits", or_null(requests.hits)},
          {"plan_misses", or_null(requests.misses)},
          {"patterns", stats.patterns},
          {"pattern_bytes", stats.pattern_bytes},
          {"fragmentation", or_null(fragmentation(stats))},
          {"wall_s", report.wall_s},
          {"modelled_s", or_null(stats.modelled_s)},
          {"stall_s", or_null(stats.stall_s)},
          {"output_sha256", or_null(report.output_sha256)}};
}

}  // namespace

std::optional<double> fragmentation(const SessionStats& stats) {
  if (!stats.live_peak_bytes || !stats.reserved_peak_bytes || *stats.reserved_peak_bytes == 0)
    return std::nullopt;
  return 1.0 - static_cast<double>(*stats.live_peak_bytes) / static_cast<double>(*stats.reserved_peak_bytes);
}

Report session_report(const Session& session) {
  Report report;
  report.device = session.device_summary();
  report.threads = session.threads();
  report.cap_bytes = session.cap_bytes();
  report.low_vram = session.low_vram();
  report.ram_cap_bytes = session.ram_cap_bytes();
  return report;
}

void require_writable(const std::optional<std::filesystem::path>& path, const std::string& what) {
  if (!path) return;
  std::error_code ignored;
  const bool existed = std::filesystem::exists(*path, ignored);
  if (!std::ofstream(*path, std::ios::app))
    throw UsageError("cannot write the " + what + " '" + path->string() +
                     "': check that its folder exists and is writable");
  if (!existed) std::filesystem::remove(*path, ignored);  // a run that fails before it starts leaves none
}

void refuse(Report& report, const PlanInfeasible& reason, std::optional<Bytes> cap) {
  if (const auto* ram = dynamic_cast<const RamCapTooSmall*>(&reason)) {
    report.min_ram_cap_bytes = ram->min_ram_cap();
  } else {
    report.min_cap_bytes = reason.min_cap();
    report.min_cap_split_bytes = reason.min_cap_split();
  }
  report.cap_bytes = cap;
}

void write_report(const std::filesystem::path& path, const Report& report) {
  ordered_json json{{"schema", 1},
                    {"version", LOWTIDE_VERSION},
                    {"device",
                     {{"name", report.device.name},
                      {"kind", report.device.kind},
                      {"total_bytes", or_null(report.device.total_bytes)}}},
                    {"threads", report.threads},
                    {"cap_bytes", or_null(report.cap_bytes)},
                    {"ram_cap_bytes", or_null(report.ram_cap_bytes)},
                    {"low_vram", report.low_vram}};
  const auto highest = std::max_element(
      report.plans.begin(), report.plans.end(),
      [](const PlanSummary& a, const PlanSummary& b) { return a.peak_bytes < b.peak_bytes; });
  json["plan"] = highest == report.plans.end() ? empty_plan_json(report) : plan_json(*highest);
  json["plans"] = ordered_json::array();
  for (const PlanSummary& plan : report.plans) json["plans"].push_back(plan_json(plan));
  json["measured"] = measured_json(report);
  json["models"] = ordered_json::array();
  for (const ReportedModel& model : report.models)
    json["models"].push_back({{"name", model.name},
                              {"role", model.role},
                              {"weight_bytes", model.weight_bytes},
                              {"runs", model.runs}});
  json["jobs"] = ordered_json::array();
  for (const ReportedJob& job : report.jobs) json["jobs"].push_back(job_json(job));

  // Paths and error texts may hold bytes that are no UTF-8: replaced, not fatal.
  write_text(path, json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + '\n', "report");
}

void write_text(const std::filesystem::path& path, const std::string& text, const std::string& what) {
  std::ofstream file(path);
  file << text;
  if (!file.flush())
    throw Error("cannot write the " + what + " '" + path.string() +
                "': check that its folder exists and is writable");
}

}  // namespace lowtide::app
