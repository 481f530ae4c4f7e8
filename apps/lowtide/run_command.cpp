#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <utility>

#include "lowtide/commands.hpp"
#include "lowtide/error.hpp"
#include "lowtide/input_files.hpp"
#include "lowtide/interrupt.hpp"
#include "lowtide/log.hpp"
#include "lowtide/named_tensors.hpp"
#include "lowtide/output_files.hpp"
#include "lowtide/plan_text.hpp"
#include "lowtide/run_jobs.hpp"
#include "lowtide/waves.hpp"

namespace lowtide::app {
namespace {

constexpr int kInterruptedExit = 130;

std::vector<BatchJob> jobs_from_files(const RunCommand& command, std::size_t& ignored) {
  const InputSet set = collect_inputs(command.inputs, command.out);
  ignored = set.ignored;
  std::vector<BatchJob> jobs;
  for (const JobInput& input : set.jobs)
    jobs.push_back({input.id, command.model, input.path, input.output, ""});
  return jobs;
}

/// Turns lines of a job list into jobs; remembers outputs, so that no two jobs write the same file.
class ListedJobs {
 public:
  ListedJobs(const RunCommand& command, std::istream& stream)
      : model_(command.model),
        folder_(command.jobs == "-" ? std::filesystem::path()
                                    : std::filesystem::path(command.jobs).parent_path()),
        reader_(stream, folder_, command.model.empty()) {}

  std::optional<BatchJob> next() {
    const std::optional<JobLine> line = reader_.next();
    if (!line) return std::nullopt;
    if (const auto* error = std::get_if<std::string>(&line->job))
      return BatchJob{.id = "line " + std::to_string(line->line), .error = *error};
    const JobSpec& spec = std::get<JobSpec>(line->job);
    const std::string model = spec.model ? (folder_ / *spec.model).string() : model_;
    return BatchJob{spec.id, model, spec.inputs, spec.output, claims_.claim(spec, line->line).value_or("")};
  }

 private:
  std::string model_;
  std::filesystem::path folder_;
  JobLineReader reader_;
  OutputClaims claims_;
};

std::vector<BatchJob> jobs_from_list(const RunCommand& command) {
  std::ifstream file(command.jobs);
  if (!file) throw UsageError("cannot read the job list '" + command.jobs + "': check the path");
  ListedJobs list(command, file);
  std::vector<BatchJob> jobs;
  while (auto job = list.next()) jobs.push_back(std::move(*job));
  if (jobs.empty()) throw UsageError("the job list '" + command.jobs + "' holds no jobs");
  return jobs;
}

/// Equal for equal shapes.
std::string shape_key(const InputShapes& shapes) {
  std::string key;
  for (const auto& shape : shapes) {
    key += '/';
    if (!shape) continue;
    for (const std::int64_t size : shape->sizes) key += std::to_string(size) + 'x';
  }
  return key;
}

/// One batch: its session, models, progress and report.
class Batch {
 public:
  explicit Batch(const RunCommand& command)
      : command_(command),
        session_(command.common.session),
        shelf_(session_, command.common.program, command.common.shape_buckets,
               command.jobs.empty() || command.jobs == "-" ? ModelShelf::Buckets::all
                                                           : ModelShelf::Buckets::matching),
        interrupt_(session_) {}

  int run() {
    const double start = Progress::steady_seconds();
    announce_low_vram(session_);
    if (!command_.model.empty())
      shelf_.open(command_.model);  // a bad archive ends the run before anything else
    int code = 0;
    try {
      code = command_.jobs == "-" ? run_stream() : run_known();
    } catch (const PlanInfeasible& e) {
      write(start, &e, nullptr);
      throw;
    }
    return code;
  }

 private:
  int run_known() {
    std::size_t ignored = 0;
    std::vector<BatchJob> jobs =
        command_.jobs.empty() ? jobs_from_files(command_, ignored) : jobs_from_list(command_);
    plan_all(jobs);
    if (ignored > 0 && !command_.common.quiet)
      std::fprintf(stderr, "lowtide: %zu files of other types ignored\n", ignored);
    announce();
    const auto waves = cut_into_waves(jobs, [&](const std::string& model) { return planned_wave(model); });
    return loop(jobs.size(), [&, i = std::size_t{0}]() mutable {
      return i == waves.size() ? std::span<const BatchJob>() : waves[i++];
    });
  }

  /// What will come is not known: every job runs as soon as it is read.
  int run_stream() {
    ListedJobs list(command_, std::cin);
    std::optional<BatchJob> job = list.next();
    if (!job) throw UsageError("no jobs on standard input: give one JSON job a line");
    return loop(0, [&, first = true]() mutable {
      if (!std::exchange(first, false)) job = list.next();
      return job ? std::span<const BatchJob>(&*job, 1) : std::span<const BatchJob>();
    });
  }

  /// Looks at every input's header, so that one plan serves them all and nothing runs if something cannot
  /// fit.
  void plan_all(std::vector<BatchJob>& jobs) {
    std::vector<PlannedJob> planned;
    for (BatchJob& job : jobs) {
      if (!job.error.empty()) continue;
      ModelShelf::Entry* entry = nullptr;
      try {
        entry = &shelf_.open(job.model);
      } catch (const ArchiveError& e) {
        if (!command_.model.empty()) throw;
        job.error = e.what();
        continue;
      }
      try {
        PlannedJob plan{entry->handle, read_shapes(entry->model, job.inputs)};
        if (!command_.common.shape_buckets.empty())
          job.bucket = shape_key(session_.padded_shapes(plan.model, plan.shapes));
        planned.push_back(std::move(plan));
      } catch (const InputError& e) {
        job.error = e.what();
      }
    }
    shelf_.require_buckets_used();
    if (!planned.empty()) plans_ = session_.plan_jobs(planned);
  }

  /// Plans know models by name only. Where two archives share one, the larger wave does: a session cuts what
  /// is too much for it.
  std::size_t planned_wave(const std::string& model) {
    const std::string name = shelf_.open(model).model.name();
    int wave = 1;
    for (const PlanSummary& plan : plans_)
      if (plan.model == name) wave = std::max(wave, plan.wave);
    return static_cast<std::size_t>(wave);
  }

  void announce() const {
    announce_choice(session_);
    if (command_.common.verbose) {
      for (const PlanSummary& plan : plans_) std::fprintf(stderr, "lowtide: %s\n", plan_line(plan).c_str());
    }
  }

  void make_output_folder() const {
    std::error_code error;
    std::filesystem::create_directories(command_.out, error);
    if (error || !std::filesystem::is_directory(command_.out))
      throw UsageError("cannot make the output folder '" + command_.out.string() + "': " +
                       (error ? error.message() : "there is a file of that name") + "; choose another --out");
  }

  template <class Next>
  int loop(std::size_t total, Next next) {
    const double start = Progress::steady_seconds();
    make_output_folder();
    remove_stray_temporaries(command_.out);
    Progress progress(total, STDERR_FILENO, command_.common.quiet);
    JobRunner runner(session_, shelf_, command_.out, progress);
    bool cancelled = false;
    try {
      for (std::span<const BatchJob> wave = next(); !wave.empty(); wave = next()) {
        if (interrupt_.interrupted()) throw Cancelled("interrupted");
        runner.run(wave);
      }
    } catch (const Cancelled&) {
      cancelled = true;
    }
    progress.finish();
    // A cap that was asked for keeps its meaning from run to run: such runs do not change what is known.
    if (!command_.common.session.vram_cap) session_.remember();
    if (plans_.empty()) plans_ = session_.planned();
    write(start, nullptr, &runner);
    if (cancelled) return kInterruptedExit;
    return runner.any_failed() ? 1 : 0;
  }

  void write(double start, const PlanInfeasible* infeasible, JobRunner* runner) {
    if (!command_.common.report) return;
    Report report = session_report(session_);
    report.plans = plans_;
    if (infeasible != nullptr) refuse(report, *infeasible, command_.common.session.vram_cap);
    report.stats = session_.stats();
    report.models = shelf_.report();
    report.wall_s = Progress::steady_seconds() - start;
    if (runner != nullptr) {
      report.jobs = runner->jobs();
      report.output_sha256 = runner->sha256();
    }
    write_report(*command_.common.report, report);
  }

  const RunCommand& command_;
  Session session_;
  ModelShelf shelf_;
  InterruptGuard interrupt_;
  std::vector<PlanSummary> plans_;
};

}  // namespace

int run(const RunCommand& command) {
  require_writable(command.common.report, "report");
  return Batch(command).run();
}

}  // namespace lowtide::app
