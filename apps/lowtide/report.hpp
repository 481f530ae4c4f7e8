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
  std::optional<Bytes> ram_cap_bytes;
  bool low_vram = false;
  std::vector<PlanSummary> plans;
  std::optional<Bytes> min_cap_bytes;  // where no plan was possible, as the next
  std::optional<Bytes> min_cap_split_bytes;
  std::optional<Bytes> min_ram_cap_bytes;
  std::optional<SessionStats> stats;  // nothing was run: zeros
  double wall_s = 0;
  std::vector<ReportedModel> models;
  std::vector<ReportedJob> jobs;
  std::optional<std::string> output_sha256;
};

/// 1 - live / reserved at the peak; nothing where the device does not tell.
std::optional<double> fragmentation(const SessionStats& stats);

/// Everything a session knows by itself.
Report session_report(const Session& session);

/// Notes that nothing could be planned under `cap`, and with which caps it could.
void refuse(Report& report, const PlanInfeasible& reason, std::optional<Bytes> cap);

/// Throws UsageError when a file is asked for where none can be written: before the work, not after it.
/// `what` it is: "report".
void require_writable(const std::optional<std::filesystem::path>& path, const std::string& what);

/// Throws Error when the file cannot be written.
void write_report(const std::filesystem::path& path, const Report& report);
/// The same for a file of another kind.
void write_text(const std::filesystem::path& path, const std::string& text, const std::string& what);

}  // namespace lowtide::app
