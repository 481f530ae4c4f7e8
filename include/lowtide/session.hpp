// One device, one cap, all models on it.
#pragma once

#include <ATen/core/Tensor.h>

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lowtide/error.hpp"
#include "lowtide/model.hpp"
#include "lowtide/named_tensor.hpp"
#include "lowtide/options.hpp"
#include "lowtide/plan_summary.hpp"
#include "lowtide/run_report.hpp"

namespace lowtide {

/// A model of a session.
struct ModelHandle {
  std::size_t index = 0;
};

/// The device of a session, opened or not.
struct DeviceSummary {
  std::string name;
  std::string kind;
  std::optional<Bytes> total_bytes;  // nothing on the cpu
};

/// One job that is going to run: which model, which shapes.
struct PlannedJob {
  ModelHandle model;
  InputShapes shapes;
};

/// What became of one job of run_many().
struct JobOutcome {
  std::vector<at::Tensor> outputs;  // as of Session::run(); empty where it failed
  std::exception_ptr error;         // InputError, OutOfBudget or OperatorError; null where it did not fail
  JobStats stats;                   // time and traffic are the wave's shared equally among its jobs
};

/// Thread-safe by queue: calls from several threads run one after the other. Closing a session gives back all
/// it holds.
class Session {
 public:
  /// Opens the device. Throws UsageError for options that do not go together, DeviceError when there is no
  /// such device.
  explicit Session(const SessionOptions& options);
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  /// Throws UsageError for buckets that do not suit the model.
  ModelHandle add(const Model& model, const ModelOptions& options = {});

  /// The shapes at which a job of these shapes runs: larger ones where the model has buckets, else the same.
  /// Throws InputError for shapes that the model does not take, or that no bucket holds.
  InputShapes padded_shapes(ModelHandle model, const InputShapes& shapes) const;
  /// All shapes at which jobs like this one can run: each bucket in its place, all else as given. Without
  /// buckets, the job's own. Throws InputError; UsageError where there are more than 256.
  std::vector<InputShapes> bucket_shapes(ModelHandle model, const InputShapes& like) const;

  /// Plans for exactly these jobs together: one cap, one slab for weights, one proof per model and shape.
  /// Replaces the plan before it. Touches nothing on the device. Throws PlanInfeasible with the smallest cap
  /// that works, RamCapTooSmall with the smallest RAM cap, InputError for shapes the model does not take.
  /// Summaries in order of first appearance, equal jobs once.
  std::vector<PlanSummary> plan_jobs(const std::vector<PlannedJob>& jobs);
  /// The same for one model and shape.
  PlanSummary plan(ModelHandle model, const InputShapes& shapes);

  /// The plan in force, shapes that were planned on the way included.
  std::vector<PlanSummary> planned() const;

  /// Runs one job. `inputs` in flattened order on the host (undefined tensors for None and constant inputs).
  /// Results are on the host, in flattened order, contiguous; undefined for None; integers and floats as 0-d
  /// tensors. Inputs are not modified. State (buffers the model writes) starts from the archive's values, but
  /// for models added with keep_state. A shape that was not planned is planned now. Throws InputError,
  /// PlanInfeasible, OutOfBudget, OperatorError, Cancelled, and ArchiveError when the model's file cannot be
  /// read or changed; the device is then back at its baseline.
  std::vector<at::Tensor> run(ModelHandle model, const std::vector<at::Tensor>& inputs);
  /// Runs jobs of one model in layer-major waves of the planned size: all jobs of a wave pass a group of
  /// layers before the next group's weights arrive. Results in the order of `jobs`, the same bits as run()
  /// gives. A job that fails leaves its wave, the others finish. Throws what ends all of them: DeviceError,
  /// Cancelled, PlanInfeasible, ArchiveError.
  std::vector<JobOutcome> run_many(ModelHandle model, const std::vector<std::vector<at::Tensor>>& jobs);
  /// Of the last run, also of one that failed on the device.
  const JobStats& last_job() const;
  SessionStats stats() const;

  /// Predicted time over the cap, from the smallest cap to the one that keeps everything, for the jobs of the
  /// last plan.
  std::vector<CapPoint> cap_curve() const;

  /// For models added with keep_state, between jobs; else a UsageError. State as in the archive again.
  void reset_state(ModelHandle model);
  /// Its values, on the host: a name of the model, the tensor; in memory of their own.
  std::vector<NamedTensor> save_state(ModelHandle model);
  /// What save_state() gave for this model, perhaps in another process. Throws InputError where names, shapes
  /// or types are others; the state is then as before.
  void load_state(ModelHandle model, const std::vector<NamedTensor>& state);

  /// Writes the peaks measured so far to SessionOptions::learned_file, for later sessions.
  void remember();
  /// Gives everything back but the context.
  void trim();
  /// From any thread or signal handler: the run in progress ends after its present step with Cancelled. Stays
  /// set until cleared.
  void cancel(bool on = true) noexcept;

  bool low_vram() const;
  int threads() const;
  DeviceSummary device_summary() const;
  /// The cap in force, context included; nothing on the cpu.
  std::optional<Bytes> cap_bytes() const;
  /// SessionOptions::ram_cap.
  std::optional<Bytes> ram_cap_bytes() const;
  /// With low_vram: smallest cap within 20 % of resident time, 40 % of the resident peak, smallest feasible
  /// (each with context).
  struct LowVramChoice {
    Bytes near_resident_cap = 0;
    Bytes share_of_peak_cap = 0;
    Bytes min_cap = 0;
    Bytes chosen = 0;
  };
  std::optional<LowVramChoice> low_vram_choice() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lowtide
