// Planned places for what the jobs of a session ask for: which pattern a wave follows, and what is learned
// from it.
#include <ATen/Version.h>
#include <c10/util/Exception.h>
#include <torch/version.h>

#include "lowtide/log.hpp"
#include "session/session_impl.hpp"
#include "session/wave_run.hpp"

namespace lowtide {

namespace {

/// Runs with misses after which a pattern is no longer made anew: the program does not ask alike each time.
constexpr int kMostFaults = 3;
/// Beyond it faults are counted from the beginning.
constexpr std::size_t kMostKnownFaults = 1024;

/// How the jobs walk.
std::string walk_text(const detail::Variant& variant) {
  std::string text = variant.spill ? "spilling, groups" : "groups";
  for (const plan::StepGroup& group : variant.walk.groups) text += " " + std::to_string(group.end);
  return text + ", positions " + std::to_string(variant.walk.positions.size());
}

}  // namespace

/// Before the jobs begin, the slab is there. `proved`: bytes that the jobs may take beside the weights.
/// `measured`: each step's memory is looked at, so it must come one by one.
Session::Impl::ArenaRun Session::Impl::open_arena(std::size_t index, const std::vector<PreparedJob>& prepared,
                                                  Bytes proved, bool measured) {
  ArenaRun run{.proved = proved};
  bool plannable = options.pattern;
  std::string asked;
  for (const PreparedJob& job : prepared) {
    const detail::ShapePlan& shape = *find_shape(index, job.described);
    plannable = plannable && shape.exact_sizes;
    run.text += (run.text.empty() ? "" : "; ") + shape.text;
    asked += (asked.empty() ? "" : "; ") + shape.text + job.strides + " " + shape.basis;
  }
  // Whatever makes two waves ask for the same memory in the same order.
  run.key = "torch " TORCH_VERSION ", cpu " + at::get_cpu_capability() + ", model " +
            entries[index].data->fingerprint() + ", card " + card.name + ", threads " +
            std::to_string(threads) + ", " + walk_text(*plan->models.at(index).variant) + ", jobs " + asked;
  const auto known = plannable ? find_pattern(run.key) : nullptr;
  if (known && !measured && known->region_bytes() <= proved) run.pattern = known;
  run.records = plannable && !known;
  device::DeviceExtras& extras = *device->extras();
  const auto open = [&](Bytes region) {
    return extras.open_region({.bytes = region, .growth = options.arena, .placement = &arena});
  };
  if (run.pattern) {
    arena.start_placing(run.pattern);
    try {
      run.planned_places = open(run.pattern->region_bytes());
      return run;
    } catch (const OutOfBudget&) {
    } catch (const c10::Error&) {  // the host has no memory for a simulated card's
    }
    if (count_fault(run.key) == 1)
      log_message(LogLevel::warning, "the device has no " + format_bytes(run.pattern->region_bytes()) +
                                         " in one piece: memory of jobs with " + run.text +
                                         " is taken bit by bit");
    run.pattern = nullptr;
  }
  if (run.records) {
    arena.start_recording();
  } else {
    arena.start_counting();
  }
  run.planned_places = open(0);
  return run;
}

/// Of this session, or of an earlier process.
std::shared_ptr<const memory::MemoryPattern> Session::Impl::find_pattern(const std::string& key) {
  if (auto known = patterns.find(key)) return known;
  if (pattern_faults.contains(key)) return nullptr;  // it was looked up, and did not hold what it promised
  const auto trace = pattern_store.find(key);
  if (!trace) return nullptr;
  patterns.put(key, detail::make_pattern(*trace));
  return patterns.find(key);
}

/// A pattern was of no use. Returns how often so far.
int Session::Impl::count_fault(const std::string& key) {
  if (pattern_faults.size() > kMostKnownFaults) pattern_faults.clear();
  return ++pattern_faults[key];
}

void Session::Impl::count_requests(const ArenaRun& run, JobStats& stats) const {
  if (!run.planned_places) return;
  stats.plan_hits = arena.hits();
  stats.plan_misses = arena.misses();
}

/// The pattern in force did not foresee everything. Said once, and the pattern is made anew; also where jobs
/// failed, perhaps for that very reason.
void Session::Impl::note_misses(const ArenaRun& run) {
  const int faults = count_fault(run.key);
  if (faults == 1)
    log_message(LogLevel::warning, "memory pattern: " + std::to_string(arena.misses()) + " of " +
                                       std::to_string(arena.hits() + arena.misses()) + " requests with " +
                                       run.text + " had no planned place, the first of " +
                                       std::to_string(arena.first_miss().bytes) + " bytes at step " +
                                       std::to_string(detail::step_of(arena.first_miss().visit)) +
                                       ": they came from the overflow region, and the pattern is made anew");
  if (faults >= kMostFaults) return;
  patterns.drop(run.key);
  pattern_store.drop(run.key);
}

/// After the jobs. Makes a pattern of what was recorded, or notes that the one in force did not fit. Returns
/// the bytes that planned places take, 0 where there are none. `complete`: all jobs passed all steps once.
Bytes Session::Impl::learn_pattern(const ArenaRun& run, bool complete) {
  if (!run.planned_places) return 0;
  if (run.pattern) {
    if (arena.misses() > 0) note_misses(run);
    return complete ? run.pattern->region_bytes() : 0;
  }
  if (!run.records || !complete) return 0;
  try {
    const memory::RequestTrace trace = arena.take_trace();
    if (trace.requests.empty()) return 0;
    const auto fresh = detail::make_pattern(trace);
    const bool fits = fresh->region_bytes() <= run.proved;
    log_message(LogLevel::debug, "memory pattern: " + run.text + " was not known; " +
                                     std::to_string(arena.misses()) + " requests were met one by one and " +
                                     (fits ? "have planned places from now on: "
                                           : "get no planned places, which would take ") +
                                     format_bytes(fresh->region_bytes()) + ", " +
                                     format_bytes(fresh->live_peak()) + " of it alive at once");
    patterns.put(run.key, fresh);
    pattern_store.put(run.key, trace);
    return fits ? fresh->region_bytes() : 0;
  } catch (const std::exception& e) {  // the jobs have their results all the same
    log_message(LogLevel::warning, "memory pattern: " + run.text + " is not learned: " + e.what());
    return 0;
  }
}

}  // namespace lowtide
