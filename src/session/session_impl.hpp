// The inside of a session: what it holds, and its work in six files: session_setup.cpp (devices, plans,
// loading), session_job.cpp (running jobs and cleaning up after them), session_arena.cpp (planned places for
// activations), session_state.cpp (state that is kept), session_buckets.cpp (padding jobs and cutting their
// results) and session_recovery.cpp (memory that went missing).
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "device/device.hpp"
#include "lowtide/session.hpp"
#include "memory/budget_ledger.hpp"
#include "memory/host_slab.hpp"
#include "session/bucket_ladders.hpp"
#include "session/learned_shapes.hpp"
#include "session/loaded_model.hpp"
#include "session/model_state.hpp"
#include "session/pattern_cache.hpp"
#include "session/pattern_store.hpp"
#include "session/ram_plan.hpp"
#include "session/session_planner.hpp"
#include "session/step_recorder.hpp"

namespace lowtide {

/// Not thread-safe but for `cancelled`: the session's public functions hold `mutex`.
struct Session::Impl {
  struct Entry {
    std::shared_ptr<const detail::ModelData> data;
    ModelOptions options;
    std::unique_ptr<detail::LoadedModel> loaded;
    std::shared_ptr<const detail::BucketLadders> buckets;  // null where it has none
    std::unique_ptr<detail::ModelState> state;             // null where none is kept

    /// The shapes at which a job of these shapes runs.
    graph::InputDescriptions run_shapes(const InputShapes& shapes) const;
  };

  explicit Impl(const SessionOptions& session_options);
  ~Impl();

  static inline std::atomic<const Impl*> card_owner{nullptr};

  bool capped() const { return spec.kind != device::DeviceKind::cpu; }
  bool has_clocks() const { return spec.kind == device::DeviceKind::sim; }
  device::Device& open();
  detail::ShapePlan shape_plan(const Entry& entry, const graph::InputDescriptions& inputs) const;
  detail::PlanRequest plan_request() const;
  void replan(std::map<std::size_t, detail::PlannedModel> models);
  void follow(detail::SessionPlan fresh);
  const detail::ShapePlan* find_shape(std::size_t index, const graph::InputDescriptions& inputs) const;
  bool use_shape(std::size_t index, const graph::InputDescriptions& inputs);
  void plan_shape(std::size_t index, const graph::InputDescriptions& inputs, std::size_t job_count);
  void plan_slots(std::map<std::size_t, detail::PlannedModel> models);
  void make_room_for_slots(std::size_t index, const graph::InputDescriptions& inputs);
  const detail::RamPlan* ram() const;
  void lend_ring();
  detail::LoadedModel& load(std::size_t index);
  at::Tensor slab_part(std::size_t index);
  void drop_slab();
  void enter_states(std::size_t index);
  void bring_states_home();
  detail::ModelState& state_at_home(std::size_t index);
  Bytes states_on_device() const;
  Bytes planned_state_bytes() const;
  at::Tensor shrink_slab(std::size_t index);
  void fit_to_memory();
  std::exception_ptr synchronise() noexcept;

  struct PreparedJob {
    std::vector<at::Tensor> inputs;
    graph::InputDescriptions described;
    std::string strides;  // of inputs that are not contiguous: they keep them on the device
  };
  PreparedJob prepare(std::size_t index, const std::vector<at::Tensor>& given) const;
  /// How the memory of one wave is planned.
  struct ArenaRun {
    bool planned_places = false;                           // the device lets us choose them
    std::string key;                                       // of the pattern
    std::string text;                                      // for people
    std::shared_ptr<const memory::MemoryPattern> pattern;  // in force; null where none is
    bool records = false;
    Bytes proved = 0;  // what a region may take
  };
  std::vector<JobOutcome> run_many(std::size_t index, const std::vector<std::vector<at::Tensor>>& given);
  std::vector<JobOutcome> run_padded(std::size_t index, const std::vector<std::vector<at::Tensor>>& given);
  void run_wave(std::size_t index, std::vector<PreparedJob>& prepared,
                const std::vector<JobOutcome*>& outcomes);
  void run_in_place(std::size_t index, PreparedJob& prepared, JobOutcome& outcome);
  std::exception_ptr end_jobs(std::size_t index, std::exception_ptr error, bool shrunk, bool all_alive);
  std::vector<at::Tensor> run(std::size_t index, const std::vector<at::Tensor>& inputs);
  void learn(const detail::PlannedModel& planned, const detail::ShapePlan& shape,
             detail::StepRecorder* recorder, Bytes proved, Bytes window_peak, Bytes layout, bool complete);
  std::unique_ptr<detail::StepRecorder> recorder_for(std::size_t index, const detail::ShapePlan& shape);
  ArenaRun open_arena(std::size_t index, const std::vector<PreparedJob>& prepared, Bytes proved,
                      bool measured);
  std::shared_ptr<const memory::MemoryPattern> find_pattern(const std::string& key);
  int count_fault(const std::string& key);
  void note_misses(const ArenaRun& run);
  void count_requests(const ArenaRun& run, JobStats& stats) const;
  Bytes learn_pattern(const ArenaRun& run, bool complete);
  JobStats measure_wave(const device::DeviceCounters& before, Bytes window_peak) const;
  void check_baseline();
  Bytes fixed_bytes() const { return device->extras()->context_bytes() + library_bytes; }

  SessionOptions options;
  device::DeviceSpec spec;
  device::sim::Card card;
  int threads = 1;
  std::mutex mutex;
  std::atomic<bool> cancelled{false};
  std::optional<device::Device> device;
  detail::LearnedShapes learned;
  residency::WeightPool pool;  // outlives the models
  memory::HostSlab ring;       // with a RAM cap; as does this
  residency::DiskTier tier;    // and this
  std::vector<Entry> entries;
  std::optional<detail::SessionPlan> plan;
  std::optional<detail::CpuPlan> cpu_plan;  // on the cpu, with a RAM cap
  std::unique_ptr<memory::BudgetLedger> ledger;
  memory::Reservation context_charge;
  memory::Reservation slab_charge;
  at::Tensor slab;
  std::set<std::size_t> on_slab;     // models that have something there
  std::optional<Bytes> reduced_cap;  // other programs hold memory: the plan in force is for this cap
  Bytes unreduced_peak = 0;          // of the plan that was put aside for that
  JobStats last;
  Bytes library_bytes = 0;                // what libraries held on the device after the last job
  std::map<std::string, int> shapes_run;  // times, by learned key
  detail::PatternCache patterns;
  detail::PatternStore pattern_store;
  memory::ActivationArena arena;
  std::map<std::string, int> pattern_faults;  // runs with misses, by key of the pattern
  std::size_t jobs = 0;
};

}  // namespace lowtide
