// The job loop: read, run, write, record; one bad input never ends the batch.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/sha256.hpp"
#include "lowtide/job_list.hpp"
#include "lowtide/progress.hpp"
#include "lowtide/report.hpp"
#include "lowtide/session.hpp"

namespace lowtide::app {

/// The models of a batch, opened at first mention.
class ModelShelf {
 public:
  ModelShelf(Session& session, std::string program) : session_(session), program_(std::move(program)) {}

  struct Entry {
    Model model;
    ModelHandle handle;
    std::size_t runs = 0;
  };

  /// Throws ArchiveError when the archive cannot be opened; the same error again when asked again.
  Entry& open(const std::string& path);
  std::vector<ReportedModel> report() const;

 private:
  Session& session_;
  std::string program_;
  std::map<std::string, Entry> entries_;
};

/// One job with its model's path settled.
struct BatchJob {
  std::string id;
  std::string model;
  JobInputs inputs;
  std::filesystem::path output;
  std::string error;  // why it cannot even be tried; empty where it can
};

/// Runs jobs and collects what the report needs, in the order in which the jobs come. Not thread-safe.
class JobRunner {
 public:
  JobRunner(Session& session, ModelShelf& shelf, std::filesystem::path out, Progress& progress)
      : session_(session), shelf_(shelf), out_(std::move(out)), progress_(progress) {}

  /// Jobs that run together, of one model; those that cannot be tried are recorded as failed. Failures of a
  /// job are recorded; DeviceError and Cancelled go through.
  void run(std::span<const BatchJob> wave);

  bool any_failed() const { return failed_ > 0; }
  const std::vector<ReportedJob>& jobs() const { return jobs_; }
  std::string sha256() { return hash_.hex(); }

 private:
  struct Attempt;

  Attempt start(const BatchJob& job);
  void run_alone(Attempt& attempt);
  void run_together(const std::vector<Attempt*>& attempts);
  static void take(Attempt& attempt, JobOutcome& outcome);
  void finish(Attempt& attempt);
  void write(const Attempt& attempt);
  void record(ReportedJob job, double seconds);

  Session& session_;
  ModelShelf& shelf_;
  std::filesystem::path out_;
  Progress& progress_;
  std::vector<ReportedJob> jobs_;
  std::size_t failed_ = 0;
  Sha256 hash_;
};

}  // namespace lowtide::app
