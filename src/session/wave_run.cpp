#include "session/wave_run.hpp"

#include <ATen/ops/from_blob.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "exec/reuse_operands.hpp"
#include "lowtide/error.hpp"
#include "lowtide/log.hpp"
#include "session/device_errors.hpp"

namespace lowtide::detail {

using plan::Pass;
using plan::Position;
using plan::StepGroup;
using plan::StepId;

void WaveRun::check_cancel() const {
  if (hooks_.cancel != nullptr && hooks_.cancel->load(std::memory_order_relaxed))
    throw Cancelled("interrupted");
}

/// Runs `body` for a job; what concerns only this job becomes its error.
template <class Body>
void WaveRun::attempt(JobRun& job, Body body) {
  try {
    try {
      body();
    } catch (...) {
      rethrow_as_ours(std::current_exception());
    }
  } catch (const DeviceError&) {
    throw;
  } catch (const Cancelled&) {
    throw;
  } catch (...) {
    if (slab_lost_) throw;  // nobody has weights any more
    job.error = std::current_exception();
    job.drop_values();
  }
}

/// Refused memory that nobody foresaw: gives back what is only kept or came early, and tries once more.
template <class Body>
void WaveRun::with_second_try(Body body, bool may_repeat) {
  try {
    body();
    return;
  } catch (const OutOfBudget&) {
    if (!may_repeat) throw;
  } catch (const c10::OutOfMemoryError&) {
    if (!may_repeat) throw;
  }
  retried_ = true;
  shrink();  // not in the handler: what it throws is what ended the wave
  body();
}

void WaveRun::run(at::Tensor slab) {
  slab_ = std::move(slab);
  try {
    walk();
  } catch (...) {
    slab_.reset();
    throw;
  }
  slab_.reset();
}

bool WaveRun::any_alive() const {
  return std::any_of(jobs_.begin(), jobs_.end(), [](const JobRun& job) { return job.alive(); });
}

void WaveRun::walk() {
  begin();
  for (const StepGroup& group : walk_.groups) {
    std::vector<JobRun*> alive;
    for (JobRun& job : jobs_) {
      if (job.alive()) alive.push_back(&job);
    }
    if (alive.empty()) return;
    const StepId steps = group.end - group.begin;
    StepId first_pass = steps;
    if (!walk_.is_wave()) first_pass = static_cast<StepId>(walk_.positions.size());  // chunks included
    pass(group, first_pass, alive.front());
    if (!walk_.is_wave()) continue;
    if (walk_.jobs > 2) {
      const std::size_t middle = alive.size() > 2 ? alive.size() - 2 : 0;
      pass_middle(group, std::span(alive).subspan(std::min<std::size_t>(1, alive.size()), middle));
    }
    pass(group, steps, alive.size() > 1 ? alive.back() : nullptr);
  }
}

void WaveRun::run_shrunk() {
  model_.residency().abandon_slab();
  shrunk_ = true;
  hooks_.recorder = nullptr;
  model_.residency().set_plan(plan_.smallest);
  run(hooks_.shrink_slab());
}

// A visit is named after the job and what it does, not after the position of the walk: where a job has
// failed, others pass at other positions. Job, before-steps, chunk, step; graphs have fewer than 2^24 steps.
constexpr unsigned kJobBits = 48, kBeforeBit = 47, kChunkBits = 24;

memory::VisitId WaveRun::visit_of_step(const JobRun& job, StepId position) const {
  const Position& at = walk_.positions[position];
  return static_cast<memory::VisitId>(&job - jobs_.data()) << kJobBits |
         static_cast<memory::VisitId>(at.chunk) << kChunkBits | at.step;
}

/// What happens before the steps of a group, which begins with `step`: inputs, values that come back.
memory::VisitId WaveRun::visit_before(const JobRun& job, StepId step) const {
  return static_cast<memory::VisitId>(&job - jobs_.data()) << kJobBits | memory::VisitId{1} << kBeforeBit |
         step;
}

StepId step_of(memory::VisitId visit) {
  return static_cast<StepId>(visit & ((memory::VisitId{1} << kChunkBits) - 1));
}

/// Sends the inputs where they wait on the device for their turn, and starts the copies of weights.
void WaveRun::begin() {
  model_.place_empty_weights();
  if (!plan_.variant->spill) {
    for (JobRun& job : jobs_) {
      if (recording(job)) hooks_.recorder->enter();
      attempt(job, [&] {
        with_second_try([&] {
          const memory::ArenaVisit visit(hooks_.arena, visit_before(job, 0));
          model_.send_inputs(job);
        });
      });
      if (!recording(job)) continue;
      hooks_.recorder->inputs_are_there();
      hooks_.recorder->leave();
    }
  }
  model_.residency().begin_job(slab_);
  begun_ = true;
}

/// One job, or nobody, passes the group while its weights arrive (first pass) or go (last pass).
void WaveRun::pass(const StepGroup& group, StepId positions, JobRun* job) {
  if (job != nullptr) enter(*job);
  for (StepId i = 0; i < positions; ++i, ++position_) {
    check_cancel();
    if (!any_alive()) return;
    residency::Lease lease = model_.residency().acquire(position_);
    if (job != nullptr && job->alive()) step(*job, position_);
  }
  if (job != nullptr && job->alive()) leave(*job, group);
}

/// The other jobs, one after the other; the group's weights are all there.
void WaveRun::pass_middle(const StepGroup& group, std::span<JobRun* const> jobs) {
  const StepId end = position_ + (group.end - group.begin);
  {
    const residency::Lease lease = model_.residency().acquire(position_);
    for (JobRun* job : jobs) {
      enter(*job);
      for (StepId i = 0; i < group.end - group.begin; ++i) {
        check_cancel();
        if (job->alive()) step(*job, position_ + i);
      }
      if (job->alive()) leave(*job, group);
    }
  }
  for (++position_; position_ < end; ++position_)
    const residency::Lease lease = model_.residency().acquire(position_);
}

/// The job's values are on the device from here on.
void WaveRun::enter(JobRun& job) {
  if (recording(job)) hooks_.recorder->enter();
  const bool sends = !job.inputs_sent;
  if (!sends && job.parked.empty()) return;
  attempt(job, [&] {
    with_second_try([&] {
      const memory::ArenaVisit visit(hooks_.arena, visit_before(job, walk_.positions[position_].step));
      if (sends) {
        model_.send_inputs(job);
      } else {
        restore(job);
      }
    });
    if (sends && recording(job)) hooks_.recorder->inputs_are_there();
  });
}

void WaveRun::leave(JobRun& job, const StepGroup& group) {
  attempt(job, [&] {
    if (group == walk_.groups.back()) {
      model_.fetch_outputs(job);
    } else if (plan_.variant->spill) {
      park(job);
    }
  });
  if (recording(job)) hooks_.recorder->leave();
}

void WaveRun::park(JobRun& job) {
  std::vector<at::Tensor> tensors;
  for (graph::ValueId value = 0; value < job.frame.size(); ++value) {
    if (!job.frame[value].isTensor()) continue;
    tensors.push_back(job.frame[value].toTensor());
    job.frame[value] = c10::IValue();
    job.parked.push_back(value);
  }
  job.parked_values.park(std::move(tensors), slab_, model_.device(), model_.staging());
}

void WaveRun::restore(JobRun& job) {
  const std::vector<at::Tensor> tensors = job.parked_values.restore(model_.device());
  for (std::size_t i = 0; i < tensors.size(); ++i) job.frame[job.parked[i]] = tensors[i];
  job.parked.clear();
}

void WaveRun::step(JobRun& job, StepId at) {
  const Position& position = walk_.positions[at];
  const bool last_chunk = position.chunk + 1 == position.chunks;
  if (recording(job) && position.chunk == 0) hooks_.recorder->before(position.step);
  attempt(job, [&] {
    // An operator that writes its arguments may have begun to.
    const graph::Node& node = model_.data().program().graph.nodes[position.step];
    const bool repeatable = node.traits.writes.empty() || exec::reuses_operand(node);
    with_second_try(
        [&] {
          const memory::ArenaVisit visit(hooks_.arena, visit_of_step(job, at));
          run_operator(job, position);
        },
        repeatable);
  });
  if (recording(job) && last_chunk && job.alive()) hooks_.recorder->after(position.step);
}

void WaveRun::run_operator(JobRun& job, const Position& position) {
  if (position.chunks == 1) {
    model_.executor().run_step(job.frame, position.step);
    return;
  }
  const std::int64_t rows = model_.data().linear_rows(position.step);
  const auto [first, end] =
      plan::chunk_rows(static_cast<std::uint64_t>(rows), position.chunk, position.chunks);
  model_.executor().run_chunk(job.frame, position.step,
                              {static_cast<std::int64_t>(first), static_cast<std::int64_t>(end), rows});
}

/// Waits for the device, which may free memory by itself, and goes on with the smallest slab where that is
/// smaller than the present one.
void WaveRun::shrink() {
  residency::ResidencyManager& manager = model_.residency();
  const c10::impl::VirtualGuardImpl guard(model_.device().torch().type());
  guard.synchronizeDevice(model_.device().torch().index());
  hooks_.recorder = nullptr;  // what is measured now is not the plan
  if (shrunk_ || plan_.smallest.slab_bytes >= hooks_.slab_bytes) return;

  residency::SavedState state;
  struct MovedView {
    c10::IValue* value;
    residency::ResidencyManager::Anchor anchor;
    std::vector<std::int64_t> sizes, strides;
    at::TensorOptions options;
  };
  std::vector<MovedView> views;
  if (begun_) {
    state = manager.save_state();
    for (JobRun& job : jobs_) {
      for (graph::ValueId value = 0; value < job.frame.size(); ++value) {
        if (!job.frame[value].isTensor() || !job.frame[value].toTensor().defined()) continue;
        const at::Tensor& tensor = job.frame[value].toTensor();
        if (tensor.device() != model_.device().torch()) continue;
        const auto anchor = manager.find_anchor(tensor.const_data_ptr(), position_);
        if (!anchor) continue;
        views.push_back(
            {&job.frame[value], *anchor, tensor.sizes().vec(), tensor.strides().vec(), tensor.options()});
        job.frame[value] = c10::IValue();
      }
    }
  }
  manager.abandon_slab();
  model_.executor().drop_weights();
  slab_.reset();
  shrunk_ = slab_lost_ = true;
  slab_ = hooks_.shrink_slab();
  model_.place_empty_weights();
  if (!begun_) {
    manager.set_plan(plan_.smallest);
    slab_lost_ = false;
    return;
  }
  manager.resume(slab_, plan_.smallest, position_, state);
  slab_lost_ = false;  // only now: without its weights no job can go on
  for (const MovedView& view : views) {
    void* place = manager.at_anchor(view.anchor, position_);
    if (place == nullptr) throw Error("internal: a view of a weight outlives the weight's place");
    *view.value = at::from_blob(
        place, view.sizes, view.strides, [slab = slab_](void*) {}, view.options, model_.device().torch());
  }
}

}  // namespace lowtide::detail
