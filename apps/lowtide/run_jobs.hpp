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
  /// Which buckets a model gets.
  enum class Buckets {
    all,       // a model that lacks one of the inputs is refused
    matching,  // those whose input it has: one batch runs several models
  };

  ModelShelf(Session& session, std::string program, std::vector<ShapeBuckets> buckets = {},
             Buckets which = Buckets::all)
      : session_(session),
        program_(std::move(program)),
        buckets_(std::move(buckets)),
        which_(which),
        used_(buckets_.size(), which == Buckets::all) {}

  struct Entry {
    Model model;
    ModelHandle handle;
    std::size_t runs = 0;
  };

  /// Throws ArchiveError when the archive cannot be opened, UsageError where its buckets do not suit it; the
  /// same error again when asked again.
  Entry& open(const std::string& path);
  std::vector<ReportedModel> report() const;
  /// Throws UsageError where no model so far has the input of some buckets.
  void require_buckets_used() const;

 private:
  std::vector<ShapeBuckets> buckets_of(const Model& model);

  Session& session_;
  std::string program_;
  std::vector<ShapeBuckets> buckets_;
  Buckets which_;
  std::vector<bool> used_;
  std::map<std::string, Entry> entries_;
};

/// One job with its model's path settled.
struct BatchJob {
  std::string id;
  std::string model;
  JobInputs inputs;
  std::filesystem::path output;
  std::string error;   // why it cannot even be tried; empty where it can
  std::string bucket;  // equal where jobs of a model are padded to the same shape; empty without buckets
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
