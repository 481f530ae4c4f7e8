#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <iterator>

#include "base/checked_math.hpp"
#include "device/job_scope.hpp"
#include "lowtide/log.hpp"
#include "session/describe_inputs.hpp"
#include "session/device_errors.hpp"
#include "session/session_impl.hpp"
#include "session/wave_run.hpp"

namespace lowtide {

using detail::LoadedModel;
using detail::ShapePlan;
using memory::MemoryTag;

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// More runs would tell nothing new, and cost a little.
constexpr int kMeasuredRuns = 2;

/// Errors that are not one job's own.
void rethrow_fatal(const std::exception_ptr& error) {
  if (!error) return;
  try {
    std::rethrow_exception(error);
  } catch (const DeviceError&) {
    throw;
  } catch (const Cancelled&) {
    throw;
  } catch (const ArchiveError&) {
    throw;
  } catch (...) {
  }
}

/// Of so many jobs each has the same share of the wave; the first also what does not divide.
JobStats share_of(const JobStats& wave, std::size_t jobs, bool first) {
  JobStats share = wave;
  const auto part = [&](Bytes bytes) { return bytes / jobs + (first ? bytes % jobs : 0); };
  share.wall_s = wave.wall_s / static_cast<double>(jobs);
  if (wave.modelled_s) share.modelled_s = *wave.modelled_s / static_cast<double>(jobs);
  share.h2d_bytes = part(wave.h2d_bytes);
  share.h2d_copies = part(wave.h2d_copies);
  share.d2h_bytes = part(wave.d2h_bytes);
  share.driver_allocs = part(wave.driver_allocs);
  if (wave.plan_hits) share.plan_hits = part(*wave.plan_hits);
  if (wave.plan_misses) share.plan_misses = part(*wave.plan_misses);
  if (wave.disk_read_bytes) share.disk_read_bytes = part(*wave.disk_read_bytes);
  return share;
}

}  // namespace

/// The part of the slab that is this model's; others that have something there forget it.
at::Tensor Session::Impl::slab_part(std::size_t index) {
  const detail::PlannedModel& model = plan->models.at(index);
  for (auto other = on_slab.begin(); other != on_slab.end();) {
    const bool stays = *other == index || !model.shares_slab_with(plan->models.at(*other));
    if (!stays) entries[*other].loaded->forget_device();
    other = stays ? std::next(other) : on_slab.erase(other);
  }
  if (!slab.defined()) {
    slab_charge = ledger->reserve(MemoryTag::weights, plan->slab_bytes, "the weight slab");
    slab = at::empty({static_cast<std::int64_t>(plan->slab_bytes)},
                     at::TensorOptions().dtype(at::kByte).device(device->torch()));
  }
  on_slab.insert(index);
  if (model.residency.slab_bytes == plan->slab_bytes) return slab;
  // Not narrow(): that would be an operator, which costs the host a launch.
  return at::from_blob(
      static_cast<std::byte*>(slab.mutable_data_ptr()) + model.slab_begin,
      {static_cast<std::int64_t>(model.residency.slab_bytes)}, [whole = slab](void*) {}, slab.options(),
      device->torch());
}

void Session::Impl::drop_slab() {
  for (const std::size_t index : on_slab) entries[index].loaded->forget_device();
  on_slab.clear();
  slab.reset();
  slab_charge.release();
}

/// What the device reports only now, if anything.
std::exception_ptr Session::Impl::synchronise() noexcept {
  try {
    c10::impl::VirtualGuardImpl(device->torch().type()).synchronizeDevice(device->torch().index());
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

/// Cleans up after a wave, whatever happened. Returns `error`, or what the device reports late.
std::exception_ptr Session::Impl::end_jobs(std::size_t index, std::exception_ptr error, bool shrunk,
                                           bool all_alive) {
  LoadedModel& model = *entries[index].loaded;
  const std::exception_ptr late = synchronise();
  if (!error) error = late;
  device->extras()->close_region();
  model.finish_jobs();
  if (entries[index].state) {
    model.drop_state();
    entries[index].state->end_job(error != nullptr || !all_alive);
  }
  if (shrunk) {
    drop_slab();
    model.use_plan(plan->models.at(index));
  }
  if (options.after_job == AfterJob::release) {
    drop_slab();
    device->extras()->trim();
  } else {
    if (error) model.forget_device();  // what arrived and what did not is no longer worth knowing
    device->extras()->trim_to(plan->context_bytes + plan->state_bytes + plan->slab_bytes + plan->job_bytes);
  }
  return error;
}

JobStats Session::Impl::measure_wave(const device::DeviceCounters& before, Bytes window_peak) const {
  JobStats stats;
  const device::DeviceCounters after = device->extras()->counters();
  if (has_clocks()) stats.modelled_s = after.modelled_s - before.modelled_s;
  stats.peak_bytes = window_peak;
  stats.used_after_bytes = after.used_bytes;
  stats.h2d_bytes = after.h2d_bytes - before.h2d_bytes;
  stats.h2d_copies = after.h2d_copies - before.h2d_copies;
  stats.d2h_bytes = after.d2h_bytes - before.d2h_bytes;
  stats.driver_allocs = after.driver_allocs - before.driver_allocs;
  return stats;
}

void Session::Impl::check_baseline() {
  if (device->in_place()) return;
  const bool keeps = options.after_job == AfterJob::keep;
  const Bytes expected =
      fixed_bytes() + (slab.defined() && keeps ? plan->slab_bytes : 0) + states_on_device();
  if (*last.used_after_bytes == expected) return;
  const std::string text = "the device holds " + std::to_string(*last.used_after_bytes) +
                           " bytes after the job, expected " + std::to_string(expected) +
                           "; please report this as an error of lowtide";
  // On a GPU a library may keep memory of ours that nobody foresaw; the results are right all the same.
  if (spec.kind != device::DeviceKind::cuda) throw Error("internal: " + text);
  log_message(LogLevel::warning, text);
}

Session::Impl::PreparedJob Session::Impl::prepare(std::size_t index,
                                                  const std::vector<at::Tensor>& given) const {
  const detail::ModelData& data = *entries[index].data;
  PreparedJob job{.inputs = detail::complete_inputs(data, given)};
  job.described = detail::describe_inputs(data, job.inputs);
  graph::bind_inputs(data.program(), job.described);  // checks
  for (std::size_t i = 0; i < job.inputs.size(); ++i) {
    if (job.inputs[i].defined() && !job.inputs[i].is_contiguous())
      job.strides += " " + std::to_string(i) + " by" + c10::str(job.inputs[i].strides());
  }
  return job;
}

std::unique_ptr<detail::StepRecorder> Session::Impl::recorder_for(std::size_t index, const ShapePlan& shape) {
  const detail::PlannedModel& model = plan->models.at(index);
  const auto runs = shapes_run.find(shape.learned_key);
  const bool known =
      shape.state == WorkspaceState::learned || (runs != shapes_run.end() && runs->second >= kMeasuredRuns);
  // Where weights come from disk, steps wait for it, and how long is no property of the steps.
  const bool from_disk = plan->ram && plan->ram->ring_bytes > 0;
  if (known || from_disk || !shape.exact_sizes || model.variant->split_weights > 0) return nullptr;
  return std::make_unique<detail::StepRecorder>(*device, shape.profile.costs.size(), card.alloc_s);
}

void Session::Impl::run_in_place(std::size_t index, PreparedJob& prepared, JobOutcome& outcome) {
  const auto start = std::chrono::steady_clock::now();
  if (options.ram_cap) make_room_for_slots(index, prepared.described);
  const Bytes disk_before = tier.bytes_read;
  LoadedModel& model = load(index);
  detail::JobRun job = model.make_job(std::move(prepared.inputs));
  detail::ModelState* state = entries[index].state.get();
  try {
    if (state != nullptr) {
      enter_states(index);
      state->begin_job();
    }
    model.run_in_place(job, state, cancelled);
    outcome.outputs = job.results();
  } catch (...) {
    outcome.error = std::current_exception();
  }
  model.finish_jobs();
  if (state != nullptr) state->end_job(outcome.error != nullptr);
  if (outcome.error && cpu_plan) model.forget_device();  // what arrived and what did not is no longer known
  if (options.ram_cap) outcome.stats.disk_read_bytes = tier.bytes_read - disk_before;
  outcome.stats.wall_s = seconds_since(start);
  last = outcome.stats;
  if (!outcome.error) ++jobs;
}

/// Runs at most a wave of jobs. Fills the outcomes; throws what ends all of them.
void Session::Impl::run_wave(std::size_t index, std::vector<PreparedJob>& prepared,
                             const std::vector<JobOutcome*>& outcomes) {
  const auto start = std::chrono::steady_clock::now();
  const Bytes disk_before = tier.bytes_read;
  LoadedModel& model = load(index);
  const detail::PlannedModel& planned = plan->models.at(index);
  const ShapePlan& shape = *find_shape(index, prepared.front().described);
  const Bytes job_bytes = planned.variant->walk.is_wave() || planned.variant->split_weights > 0
                              ? planned.variant->job_bytes
                              : shape.peak_bytes;
  device::DeviceExtras& extras = *device->extras();
  model.staging().reset();  // results of the wave before have been read out of it
  const device::DeviceCounters before = extras.counters();
  extras.start_window();
  const std::unique_ptr<detail::StepRecorder> recorder = recorder_for(index, shape);
  std::vector<detail::JobRun> runs;
  for (PreparedJob& job : prepared) runs.push_back(model.make_job(std::move(job.inputs)));
  detail::WaveHooks hooks{
      .cancel = &cancelled, .recorder = recorder.get(), .arena = &arena, .slab_bytes = plan->slab_bytes};
  hooks.shrink_slab = [&] { return shrink_slab(index); };
  detail::WaveRun wave(model, planned, runs, hooks);
  memory::Reservation job_charge;
  ArenaRun arena_run;
  detail::ModelState* state = entries[index].state.get();
  std::exception_ptr error;
  try {
    const device::JobScope scope(&extras);
    at::Tensor part;
    try {
      part = slab_part(index);
    } catch (const c10::OutOfMemoryError&) {
    }
    if (state != nullptr) {
      enter_states(index);
      state->begin_job();
      model.place_state(*state);
    }
    job_charge = ledger->reserve(MemoryTag::activations, job_bytes, "the job's activations and workspace");
    arena_run = open_arena(index, prepared, job_bytes, recorder != nullptr);
    if (part.defined()) {
      wave.run(std::move(part));
    } else {
      wave.run_shrunk();
    }
    if (state != nullptr) state->send_home(*device, model.staging());
  } catch (...) {
    error = std::current_exception();
    for (detail::JobRun& run : runs) run.drop_values();  // before what is left on the device is counted
  }
  const bool all_alive =
      std::all_of(runs.begin(), runs.end(), [](const detail::JobRun& run) { return run.alive(); });
  const Bytes held_state = states_on_device();
  error = end_jobs(index, error, wave.shrunk(), all_alive);
  const Bytes window_peak = std::max(extras.window_peak(), recorder ? recorder->window_peak() : 0);
  JobStats stats = measure_wave(before, window_peak);
  stats.wall_s = seconds_since(start);
  count_requests(arena_run, stats);
  if (options.ram_cap) stats.disk_read_bytes = tier.bytes_read - disk_before;
  library_bytes = extras.counters().library_bytes;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    outcomes[i]->stats = share_of(stats, runs.size(), i == 0);
    outcomes[i]->error = runs[i].error;
  }
  last = outcomes.front()->stats;
  if (error) detail::rethrow_as_ours(error);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!runs[i].alive()) continue;
    outcomes[i]->outputs = runs[i].results();
    ++jobs;
    const ShapePlan* own = find_shape(index, prepared[i].described);
    if (own != nullptr) outcomes[i]->stats.first_of_shape = ++shapes_run[own->learned_key] == 1;
  }
  last = outcomes.front()->stats;
  const Bytes layout = learn_pattern(arena_run, all_alive && !wave.retried() && !wave.shrunk());
  // What came beside its planned place takes memory twice: that tells nothing about the next job.
  const bool foreseen = !arena_run.pattern || arena.misses() == 0;
  if (!wave.shrunk() && foreseen)
    learn(planned, shape, recorder.get(), job_bytes, window_peak - held_state, layout, runs.front().alive());
  check_baseline();
}

/// Compares what a wave took with what was proved, and remembers it. `layout`: what its planned places take.
void Session::Impl::learn(const detail::PlannedModel& planned, const ShapePlan& shape,
                          detail::StepRecorder* recorder, Bytes proved, Bytes window_peak, Bytes layout,
                          bool complete) {
  const Bytes beside_weights = window_peak - fixed_bytes() - plan->slab_bytes;
  if (shape.bounded && beside_weights > proved)
    log_message(LogLevel::warning, "a job took " + std::to_string(beside_weights) +
                                       " bytes beside the weights where " + std::to_string(proved) +
                                       " were proved (" + shape.text +
                                       "): please report this as an error of lowtide");
  if (!complete || !shape.exact_sizes || planned.variant->split_weights > 0) return;
  if (!planned.variant->walk.is_wave())
    learned.record_peak(shape.learned_key, std::max(beside_weights, layout));
  if (recorder == nullptr) return;
  if (auto measured = recorder->finish(shape.described)) {
    if (!planned.variant->walk.is_wave()) measured->peak = std::max(measured->peak, layout);
    learned.record(shape.learned_key, shape.described, *measured);
  }
}

std::vector<JobOutcome> Session::Impl::run_many(std::size_t index,
                                                const std::vector<std::vector<at::Tensor>>& given) {
  const c10::InferenceMode inference;
  last = {};
  std::vector<JobOutcome> outcomes(given.size());
  std::vector<PreparedJob> ready;
  std::vector<JobOutcome*> waiting;
  for (std::size_t i = 0; i < given.size(); ++i) {
    try {
      ready.push_back(prepare(index, given[i]));
      waiting.push_back(&outcomes[i]);
    } catch (const InputError&) {
      outcomes[i].error = std::current_exception();
    }
  }
  if (!capped()) {
    for (std::size_t i = 0; i < ready.size(); ++i) {
      run_in_place(index, ready[i], *waiting[i]);
      rethrow_fatal(waiting[i]->error);
    }
    return outcomes;
  }
  for (const PreparedJob& job : ready) plan_shape(index, job.described, ready.size());
  for (std::size_t begin = 0; begin < ready.size();) {
    std::size_t size = 1;
    try {
      open();
      fit_to_memory();
      const auto most = [&] { return static_cast<std::size_t>(plan->models.at(index).wave()); };
      const std::size_t left = ready.size() - begin;
      const std::size_t waves = ceil_div(left, most());
      size = ceil_div(left, waves);  // waves of equal size
      for (std::size_t i = 0; i < size; ++i)
        plan_shape(index, ready[begin + i].described, 1);  // a bounded cache may have let it go
      size = std::min(size, most());                       // another plan may have smaller waves
      std::vector<PreparedJob> wave(std::make_move_iterator(ready.begin() + begin),
                                    std::make_move_iterator(ready.begin() + begin + size));
      run_wave(index, wave, {waiting.begin() + begin, waiting.begin() + begin + size});
    } catch (const OutOfBudget&) {  // these jobs cannot run; the next may
      for (std::size_t i = begin; i < begin + size; ++i) {
        if (!waiting[i]->error) waiting[i]->error = std::current_exception();
      }
    }
    begin += size;
  }
  return outcomes;
}

std::vector<at::Tensor> Session::Impl::run(std::size_t index, const std::vector<at::Tensor>& given) {
  JobOutcome outcome = std::move(run_padded(index, {given}).front());
  if (outcome.error) std::rethrow_exception(outcome.error);
  return std::move(outcome.outputs);
}

}  // namespace lowtide
