#include <unistd.h>

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

namespace lowtide::app {
namespace {

constexpr int kInterruptedExit = 130;

/// A job, or why there is none.
struct Candidate {
  BatchJob job;
  std::string error;
};

std::vector<Candidate> jobs_from_files(const RunCommand& command, std::size_t& ignored) {
  const InputSet set = collect_inputs(command.inputs, command.out);
  ignored = set.ignored;
  std::vector<Candidate> candidates;
  for (const JobInput& input : set.jobs)
    candidates.push_back({{input.id, command.model, input.path, input.output}, ""});
  return candidates;
}

/// Turns lines of a job list into jobs; remembers outputs, so that no two jobs write the same file.
class ListedJobs {
 public:
  ListedJobs(const RunCommand& command, std::istream& stream)
      : model_(command.model),
        folder_(command.jobs == "-" ? std::filesystem::path()
                                    : std::filesystem::path(command.jobs).parent_path()),
        reader_(stream, folder_, command.model.empty()) {}

  std::optional<Candidate> next() {
    const std::optional<JobLine> line = reader_.next();
    if (!line) return std::nullopt;
    Candidate candidate;
    if (const auto* error = std::get_if<std::string>(&line->job)) {
      candidate.job.id = "line " + std::to_string(line->line);
      candidate.error = *error;
      return candidate;
    }
    const JobSpec& spec = std::get<JobSpec>(line->job);
    const std::string model = spec.model ? (folder_ / *spec.model).string() : model_;
    candidate.job = {spec.id, model, spec.inputs, spec.output};
    if (const auto taken = claims_.claim(spec, line->line)) candidate.error = *taken;
    return candidate;
  }

 private:
  std::string model_;
  std::filesystem::path folder_;
  JobLineReader reader_;
  OutputClaims claims_;
};

std::vector<Candidate> jobs_from_list(const RunCommand& command) {
  std::ifstream file(command.jobs);
  if (!file) throw UsageError("cannot read the job list '" + command.jobs + "': check the path");
  ListedJobs list(command, file);
  std::vector<Candidate> candidates;
  while (auto candidate = list.next()) candidates.push_back(std::move(*candidate));
  if (candidates.empty()) throw UsageError("the job list '" + command.jobs + "' holds no jobs");
  return candidates;
}

/// One batch: its session, models, progress and report.
class Batch {
 public:
  explicit Batch(const RunCommand& command)
      : command_(command),
        session_(command.common.session),
        shelf_(session_, command.common.program),
        interrupt_(session_) {}

  int run() {
    const double start = Progress::steady_seconds();
    if (session_.low_vram())
      std::fputs("[Memory] CPU-first mode: ALL models on CPU, moved to the device layer by layer\n", stderr);
    if (!command_.model.empty())
      shelf_.open(command_.model);  // a bad archive ends the run before anything else
    int code = 0;
    try {
      code = command_.jobs == "-" ? run_stream() : run_known();
    } catch (const PlanInfeasible& e) {
      write(start, e.min_cap(), nullptr);
      throw;
    }
    return code;
  }

 private:
  int run_known() {
    std::size_t ignored = 0;
    std::vector<Candidate> candidates =
        command_.jobs.empty() ? jobs_from_files(command_, ignored) : jobs_from_list(command_);
    plan_all(candidates);
    if (ignored > 0 && !command_.common.quiet)
      std::fprintf(stderr, "lowtide: %zu files of other types ignored\n", ignored);
    announce();
    return loop(candidates.size(), [&, i = std::size_t{0}]() mutable -> std::optional<Candidate> {
      if (i == candidates.size()) return std::nullopt;
      return candidates[i++];
    });
  }

  int run_stream() {
    ListedJobs list(command_, std::cin);
    std::optional<Candidate> first = list.next();
    if (!first) throw UsageError("no jobs on standard input: give one JSON job a line");
    return loop(0, [&]() -> std::optional<Candidate> {
      if (!first) return list.next();
      return std::exchange(first, std::nullopt);
    });
  }

  /// Looks at every input's header, so that one plan serves them all and nothing runs if something cannot
  /// fit.
  void plan_all(std::vector<Candidate>& candidates) {
    std::vector<PlannedJob> planned;
    for (Candidate& candidate : candidates) {
      if (!candidate.error.empty()) continue;
      ModelShelf::Entry* entry = nullptr;
      try {
        entry = &shelf_.open(candidate.job.model);
      } catch (const ArchiveError& e) {
        if (!command_.model.empty()) throw;
        candidate.error = e.what();
        continue;
      }
      try {
        planned.push_back({entry->handle, read_shapes(entry->model, candidate.job.inputs)});
      } catch (const InputError& e) {
        candidate.error = e.what();
      }
    }
    if (!planned.empty()) plans_ = session_.plan_jobs(planned);
  }

  void announce() const {
    if (const auto choice = session_.low_vram_choice())
      std::fprintf(stderr, "lowtide: %s\n", low_vram_text(*choice).c_str());
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
      while (auto candidate = next()) {
        if (interrupt_.interrupted()) throw Cancelled("interrupted");
        if (candidate->error.empty()) {
          runner.run(candidate->job);
        } else {
          runner.reject(candidate->job.id, candidate->error);
        }
      }
    } catch (const Cancelled&) {
      cancelled = true;
    }
    progress.finish();
    // A cap that was asked for keeps its meaning from run to run: such runs do not change what is known.
    if (!command_.common.session.vram_cap) session_.remember();
    if (plans_.empty()) plans_ = session_.planned();
    write(start, std::nullopt, &runner);
    if (cancelled) return kInterruptedExit;
    return runner.any_failed() ? 1 : 0;
  }

  void write(double start, std::optional<Bytes> min_cap, JobRunner* runner) {
    if (!command_.common.report) return;
    Report report = session_report(session_);
    report.plans = plans_;
    report.min_cap_bytes = min_cap;
    if (min_cap) report.cap_bytes = command_.common.session.vram_cap;
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
  require_writable(command.common.report);
  return Batch(command).run();
}

}  // namespace lowtide::app
