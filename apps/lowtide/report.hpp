// The JSON report: what was planned, what was measured. Field names are a promise to scripts.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lowtide/session.hpp"

namespace lowtide::app {

struct ReportedJob {
  std::string id;
  std::string status;  // "ok", "failed"
  std::string error;
  std::optional<JobStats> stats;
};

struct ReportedModel {
  std::string name;
  std::string role = "main";
  Bytes weight_bytes = 0;
  std::size_t runs = 0;
};

struct Report {
  DeviceSummary device;
  int threads = 1;
  std::optional<Bytes> cap_bytes;
  bool low_vram = false;
  std::vector<PlanSummary> plans;
  std::optional<Bytes> min_cap_bytes;  // where no plan was possible
  std::optional<SessionStats> stats;   // nothing was run: zeros
  double wall_s = 0;
  std::vector<ReportedModel> models;
  std::vector<ReportedJob> jobs;
  std::optional<std::string> output_sha256;
};

/// Everything a session knows by itself.
Report session_report(const Session& session);

/// Throws UsageError when a report is asked for where none can be written: before the work, not after it.
void require_writable(const std::optional<std::filesystem::path>& path);

/// Throws Error when the file cannot be written.
void write_report(const std::filesystem::path& path, const Report& report);

}  // namespace lowtide::app
