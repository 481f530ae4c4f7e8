// Takes the jobs of a wave through the groups of a model's steps, acquiring each group's weights once.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <span>

#include "memory/activation_arena.hpp"
#include "session/loaded_model.hpp"
#include "session/step_recorder.hpp"

namespace lowtide::detail {

/// What the session lends to a run. All borrowed.
struct WaveHooks {
  const std::atomic<bool>* cancel = nullptr;
  StepRecorder* recorder = nullptr;          // of the first job; may be null
  memory::ActivationArena* arena = nullptr;  // told which step asks for memory; may be null
  /// Gives back the slab and returns one for PlannedModel::smallest. Throws c10::OutOfMemoryError when even
  /// that is refused.
  std::function<at::Tensor()> shrink_slab;
  Bytes slab_bytes = 0;  // of the slab, of which the wave may have a part only
};

/// The step of the graph that a visit of the arena is about; of inputs and values that come back, the first
/// of their group.
plan::StepId step_of(memory::VisitId visit);

/// One run; not thread-safe. Jobs that fail by themselves keep their error, the others go on; what ends all
/// of them is thrown: DeviceError, Cancelled, and refused memory where nothing can go on without it.
class WaveRun {
 public:
  WaveRun(LoadedModel& model, const PlannedModel& plan, std::span<JobRun> jobs, WaveHooks hooks)
      : model_(model), plan_(plan), walk_(plan.variant->walk), jobs_(jobs), hooks_(std::move(hooks)) {}

  /// At most as many jobs as the plan's wave.
  void run(at::Tensor slab);
  /// The same where the plan's slab was refused: with the smallest.
  void run_shrunk();
  /// Was memory given back on the way? The model then follows PlannedModel::smallest.
  bool shrunk() const { return shrunk_; }
  /// Was anything tried twice, because memory was refused?
  bool retried() const { return retried_; }

 private:
  void walk();
  bool any_alive() const;
  void begin();
  void pass(const plan::StepGroup& group, plan::StepId positions, JobRun* job);
  void pass_middle(const plan::StepGroup& group, std::span<JobRun* const> jobs);
  void enter(JobRun& job);
  void leave(JobRun& job, const plan::StepGroup& group);
  void step(JobRun& job, plan::StepId position);
  void run_operator(JobRun& job, const plan::Position& position);
  memory::VisitId visit_of_step(const JobRun& job, plan::StepId position) const;
  memory::VisitId visit_before(const JobRun& job, plan::StepId step) const;
  void park(JobRun& job);
  void restore(JobRun& job);
  template <class Body>
  void attempt(JobRun& job, Body body);
  template <class Body>
  void with_second_try(Body body, bool may_repeat = true);
  void shrink();
  bool recording(const JobRun& job) const { return hooks_.recorder != nullptr && &job == jobs_.data(); }
  void check_cancel() const;

  LoadedModel& model_;
  const PlannedModel& plan_;
  const plan::Walk& walk_;
  std::span<JobRun> jobs_;
  WaveHooks hooks_;
  at::Tensor slab_;
  plan::StepId position_ = 0;  // where the walk is
  bool begun_ = false;
  bool shrunk_ = false;
  bool retried_ = false;
  bool slab_lost_ = false;  // given back, and no other one had
};

}  // namespace lowtide::detail
