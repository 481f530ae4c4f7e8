#include "lowtide/run_jobs.hpp"

#include <exception>
#include <utility>

#include "lowtide/error.hpp"
#include "lowtide/named_tensors.hpp"
#include "lowtide/output_files.hpp"

namespace lowtide::app {

ModelShelf::Entry& ModelShelf::open(const std::string& path) {
  const auto found = entries_.find(path);
  if (found != entries_.end()) return found->second;
  Model model = Model::open(path, program_);
  const ModelHandle handle = session_.add(model, {.shape_buckets = buckets_of(model)});
  return entries_.emplace(path, Entry{std::move(model), handle}).first->second;
}

std::vector<ShapeBuckets> ModelShelf::buckets_of(const Model& model) {
  if (which_ == Buckets::all) return buckets_;
  std::vector<ShapeBuckets> matching;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    try {
      input_positions(model, {buckets_[i].input});
    } catch (const InputError&) {
      continue;
    }
    matching.push_back(buckets_[i]);
    used_[i] = true;
  }
  return matching;
}

void ModelShelf::require_buckets_used() const {
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    if (!used_[i])
      throw UsageError("--shape-buckets " + buckets_[i].input + "." + std::to_string(buckets_[i].dim) +
                       " has no effect: no model of the batch has an input of that name");
  }
}

std::vector<ReportedModel> ModelShelf::report() const {
  std::vector<ReportedModel> models;
  for (const auto& [path, entry] : entries_)
    models.push_back(
        {.name = entry.model.name(), .weight_bytes = entry.model.weight_bytes(), .runs = entry.runs});
  return models;
}

/// A job on its way through its wave.
struct JobRunner::Attempt {
  const BatchJob* job = nullptr;
  ModelShelf::Entry* entry = nullptr;
  ReportedJob reported;
  std::vector<at::Tensor> tensors;  // its inputs, then its results
  double seconds = 0;               // its own, and its share of the wave's

  bool failed() const { return reported.status == "failed"; }
  void fail(const std::string& reason) {
    reported.status = "failed";
    reported.error = reason;
    tensors.clear();
  }
};

void JobRunner::run(std::span<const BatchJob> wave) {
  std::vector<Attempt> attempts;
  for (const BatchJob& job : wave) attempts.push_back(start(job));
  std::vector<Attempt*> ready;
  for (Attempt& attempt : attempts)
    if (!attempt.failed()) ready.push_back(&attempt);
  if (ready.size() == 1) {
    run_alone(*ready.front());
  } else if (!ready.empty()) {
    run_together(ready);
  }
  for (Attempt& attempt : attempts) finish(attempt);
}

JobRunner::Attempt JobRunner::start(const BatchJob& job) {
  Attempt attempt{.job = &job, .reported = {.id = job.id, .status = "ok"}};
  if (!job.error.empty()) {
    attempt.fail(job.error);
    return attempt;
  }
  const double start = Progress::steady_seconds();
  try {
    attempt.entry = &shelf_.open(job.model);
    attempt.tensors = read_inputs(attempt.entry->model, job.inputs);
  } catch (const std::exception& e) {
    attempt.fail(e.what());
  }
  attempt.seconds = Progress::steady_seconds() - start;
  return attempt;
}

void JobRunner::run_alone(Attempt& attempt) {
  const double start = Progress::steady_seconds();
  try {
    attempt.tensors = session_.run(attempt.entry->handle, attempt.tensors);
    attempt.reported.stats = session_.last_job();
    ++attempt.entry->runs;
  } catch (const DeviceError&) {
    throw;
  } catch (const Cancelled&) {
    throw;
  } catch (const std::exception& e) {
    attempt.fail(e.what());
    if (session_.last_job().used_after_bytes) attempt.reported.stats = session_.last_job();
  }
  attempt.seconds += Progress::steady_seconds() - start;
}

void JobRunner::run_together(const std::vector<Attempt*>& attempts) {
  const double start = Progress::steady_seconds();
  std::vector<std::vector<at::Tensor>> inputs;
  for (const Attempt* attempt : attempts) inputs.push_back(attempt->tensors);
  std::vector<JobOutcome> outcomes;
  try {
    outcomes = session_.run_many(attempts.front()->entry->handle, inputs);
  } catch (const DeviceError&) {
    throw;
  } catch (const Cancelled&) {
    throw;
  } catch (const PlanInfeasible&) {
    // Everything was planned before the batch began, so a file has changed since: the others need not suffer.
    for (Attempt* attempt : attempts) run_alone(*attempt);
    return;
  } catch (const std::exception& e) {
    for (Attempt* attempt : attempts) attempt->fail(e.what());
    return;
  }
  const double share = (Progress::steady_seconds() - start) / static_cast<double>(attempts.size());
  for (std::size_t i = 0; i < attempts.size(); ++i) {
    attempts[i]->seconds += share;
    take(*attempts[i], outcomes[i]);
  }
}

void JobRunner::take(Attempt& attempt, JobOutcome& outcome) {
  if (!outcome.error) {
    attempt.reported.stats = outcome.stats;
    attempt.tensors = std::move(outcome.outputs);
    ++attempt.entry->runs;
    return;
  }
  try {
    std::rethrow_exception(outcome.error);
  } catch (const std::exception& e) {
    attempt.fail(e.what());
  }
  // A job that was refused at the door never was on the device.
  if (outcome.stats.used_after_bytes) attempt.reported.stats = outcome.stats;
}

void JobRunner::finish(Attempt& attempt) {
  const double start = Progress::steady_seconds();
  try {
    if (!attempt.failed()) write(attempt);
  } catch (const std::exception& e) {
    attempt.fail(e.what());
  }
  attempt.tensors.clear();  // the results of a wave need not all wait for its last file
  record(std::move(attempt.reported), attempt.seconds + Progress::steady_seconds() - start);
}

void JobRunner::write(const Attempt& attempt) {
  const NamedResults named = name_results(attempt.entry->model, attempt.tensors);
  write_atomically(out_, attempt.job->output, [&](const std::filesystem::path& path) {
    tensor_file::write_safetensors(path, named.tensors, named.metadata);
  });
  hash_results(hash_, named);
}

void JobRunner::record(ReportedJob job, double seconds) {
  const bool ok = job.status == "ok";
  if (!ok) ++failed_;
  progress_.finish_job({.id = job.id,
                        .status = ok ? JobStatus::ok : JobStatus::failed,
                        .error = job.error,
                        .seconds = seconds,
                        .peak = job.stats ? job.stats->peak_bytes : std::nullopt,
                        .after = job.stats ? job.stats->used_after_bytes : std::nullopt});
  if (job.stats && job.stats->used_after_bytes)
    progress_.show_device(
        {*job.stats->used_after_bytes, job.stats->peak_bytes.value_or(0), session_.cap_bytes()});
  jobs_.push_back(std::move(job));
}

}  // namespace lowtide::app
