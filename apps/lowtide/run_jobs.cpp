#include "lowtide/run_jobs.hpp"

#include "lowtide/error.hpp"
#include "lowtide/named_tensors.hpp"
#include "lowtide/output_files.hpp"

namespace lowtide::app {

ModelShelf::Entry& ModelShelf::open(const std::string& path) {
  const auto found = entries_.find(path);
  if (found != entries_.end()) return found->second;
  Model model = Model::open(path, program_);
  const ModelHandle handle = session_.add(model);
  return entries_.emplace(path, Entry{std::move(model), handle}).first->second;
}

std::vector<ReportedModel> ModelShelf::report() const {
  std::vector<ReportedModel> models;
  for (const auto& [path, entry] : entries_)
    models.push_back(
        {.name = entry.model.name(), .weight_bytes = entry.model.weight_bytes(), .runs = entry.runs});
  return models;
}

void JobRunner::run(const BatchJob& job) {
  const double start = Progress::steady_seconds();
  ReportedJob reported{.id = job.id, .status = "ok"};
  try {
    ModelShelf::Entry& entry = shelf_.open(job.model);
    const std::vector<at::Tensor> results = session_.run(entry.handle, read_inputs(entry.model, job.inputs));
    reported.stats = session_.last_job();
    ++entry.runs;
    const NamedResults named = name_results(entry.model, results);
    write_atomically(out_, job.output, [&](const std::filesystem::path& path) {
      tensor_file::write_safetensors(path, named.tensors, named.metadata);
    });
    hash_results(hash_, named);
  } catch (const DeviceError&) {
    throw;
  } catch (const Cancelled&) {
    throw;
  } catch (const std::exception& e) {
    reported.status = "failed";
    reported.error = e.what();
    if (!reported.stats && session_.last_job().used_after_bytes) reported.stats = session_.last_job();
  }
  record(std::move(reported), Progress::steady_seconds() - start);
}

void JobRunner::reject(const std::string& id, const std::string& error) {
  record({.id = id, .status = "failed", .error = error}, 0);
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
