// Planned places for what the jobs of a session ask for: which pattern a wave follows, and what is learned
// from it.
#include "lowtide/log.hpp"
#include "session/session_impl.hpp"

namespace lowtide {

namespace {

/// Runs with misses after which a pattern is no longer made anew: the program does not ask alike each time.
constexpr int kMostFaults = 3;
/// Beyond it faults are counted from the beginning.
constexpr std::size_t kMostKnownFaults = 1024;

/// Whatever makes two waves of a session ask for the same memory in the same order: the model, how its jobs
/// walk, and all their shapes. Device and threads are the session's.
std::string pattern_key(std::size_t index, const detail::Variant& variant, const std::string& shapes) {
  std::string key = "model " + std::to_string(index) + (variant.spill ? ", spilling" : "") + ", groups";
  for (const plan::StepGroup& group : variant.walk.groups) key += " " + std::to_string(group.end);
  return key + ", positions " + std::to_string(variant.walk.positions.size()) + ", jobs " + shapes;
}

}  // namespace

/// Before the jobs begin, the slab is there. `proved`: bytes that the jobs may take beside the weights.
/// `measured`: each step's memory is looked at, so it must come one by one.
Session::Impl::ArenaRun Session::Impl::open_arena(std::size_t index, const std::vector<PreparedJob>& prepared,
                                                  Bytes proved, bool measured) {
  ArenaRun run{.proved = proved};
  bool plannable = options.pattern;
  for (const PreparedJob& job : prepared) {
    const detail::ShapePlan& shape = *find_shape(index, job.described);
    plannable = plannable && shape.bounded;
    run.text += (run.text.empty() ? "" : "; ") + shape.text;
  }
  run.key = pattern_key(index, *plan->models.at(index).variant, run.text);
  if (plannable && !measured) {
    run.pattern = patterns.find(run.key);
    if (run.pattern && run.pattern->region_bytes() > proved) run.pattern = nullptr;
  }
  run.records = plannable && !run.pattern;
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
      if (count_fault(run.key) == 1)
        log_message(LogLevel::warning, "the device has no " + format_bytes(run.pattern->region_bytes()) +
                                           " in one piece: memory of jobs with " + run.text +
                                           " is taken bit by bit");
      run.pattern = nullptr;
    }
  }
  if (run.records) {
    arena.start_recording();
  } else {
    arena.start_counting();
  }
  run.planned_places = open(0);
  return run;
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

/// After the jobs. Makes a pattern of what was recorded, or notes that the one in force did not fit. Returns
/// the bytes that planned places take, 0 where there are none. `complete`: all jobs passed all steps once.
Bytes Session::Impl::learn_pattern(const ArenaRun& run, bool complete) {
  if (!run.planned_places || !complete) return 0;
  if (!run.pattern) {
    if (!run.records) return 0;
    const auto fresh = detail::make_pattern(arena.take_trace());
    const bool fits = fresh->region_bytes() <= run.proved;
    log_message(LogLevel::debug, "memory pattern: " + run.text + " was not known; " +
                                     std::to_string(arena.misses()) + " requests were met one by one and " +
                                     (fits ? "have planned places from now on: "
                                           : "get no planned places, which would take ") +
                                     format_bytes(fresh->region_bytes()) + ", " +
                                     format_bytes(fresh->live_peak()) + " of it alive at once");
    if (!fits) return 0;
    patterns.put(run.key, fresh);
    return fresh->region_bytes();
  }
  if (arena.misses() > 0) {
    const int faults = count_fault(run.key);
    if (faults == 1)
      log_message(LogLevel::warning,
                  "memory pattern: " + std::to_string(arena.misses()) + " of " +
                      std::to_string(arena.hits() + arena.misses()) + " requests with " + run.text +
                      " had no planned place, the first of " + std::to_string(arena.first_miss().bytes) +
                      " bytes at step " + std::to_string(arena.first_miss().visit & UINT32_MAX) +
                      ": they came from the overflow region, and the pattern is made anew");
    if (faults < kMostFaults) patterns.drop(run.key);
  }
  return run.pattern->region_bytes();
}

}  // namespace lowtide
