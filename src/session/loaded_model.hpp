// A model of an open session: bound to the device, with its weights at hand.
#pragma once

#include <memory>
#include <vector>

#include "device/device.hpp"
#include "exec/executor.hpp"
#include "memory/staging.hpp"
#include "residency/host_store.hpp"
#include "residency/residency_manager.hpp"
#include "session/job_run.hpp"
#include "session/mapped_weights.hpp"
#include "session/model_data.hpp"
#include "session/session_planner.hpp"

namespace lowtide::detail {

class ModelState;
struct SlotPlan;

/// What a session lends to a model under a cap on host memory.
struct RamLoan {
  const RamPart* part = nullptr;
  residency::DiskTier* tier = nullptr;
};

/// Not thread-safe. Holds no device memory between jobs, except through the weights placed in its executor.
class LoadedModel {
 public:
  /// `pool`: of the session, which outlives the model. `ram`: with a cap on host memory; what it points to
  /// outlives the model, but for the part, which is looked at now.
  LoadedModel(std::shared_ptr<const ModelData> data, const device::Device& device,
              residency::WeightPool& pool, std::optional<RamLoan> ram);

  const ModelData& data() const { return *data_; }
  const device::Device& device() const { return device_; }
  exec::Executor& executor() { return executor_; }
  /// Only with a plan.
  residency::ResidencyManager& residency() { return *manager_; }
  memory::Staging& staging() { return *staging_; }

  /// Follows this plan from the next job on. What was resident is forgotten. The plan must outlive its use.
  void use_plan(const PlannedModel& plan);
  /// The same on the cpu under a cap on host memory.
  void use_slots(const SlotPlan& plan);
  /// Forgets what is on the slab: it is going away, or serves another model.
  void forget_device();
  /// Weights without bytes need no slab.
  void place_empty_weights();

  /// A job with these inputs, checked against the signature by the caller.
  JobRun make_job(std::vector<at::Tensor> inputs) const;
  /// Puts the inputs into the job's frame; on a device, sends them there.
  void send_inputs(JobRun& job);
  /// Sends the results to the host, or on the cpu takes them, and empties the frame.
  void fetch_outputs(JobRun& job);
  /// Runs the job on the cpu, weights in place. Throws as Executor::run_step, and Cancelled.
  /// `state`: where it is kept, else null; it is on the cpu.
  void run_in_place(JobRun& job, const ModelState* state, const std::atomic<bool>& cancel);
  /// Kept state for the job that begins; and no longer.
  void place_state(const ModelState& state);
  void drop_state();
  /// After a run, successful or not, when the device has been synchronised: nothing of it is left.
  void finish_jobs();

 private:
  void load_weights(residency::WeightPool& pool, const RamPart* part);
  void look_up_on_host();
  void place_cpu_weights();
  void follow(const plan::Packing& packing, const plan::ResidencyPlan& residency);
  JobOutput output(const JobRun& job, const graph::GraphOutput& output);

  std::shared_ptr<const ModelData> data_;
  device::Device device_;
  exec::Executor executor_;
  std::vector<std::vector<graph::ValueId>> values_of_weight_;  // per weight: graph inputs that are it
  residency::DiskTier* tier_ = nullptr;                        // with a cap on host memory
  std::unique_ptr<MappedWeights> mapped_;                      // cpu without such a cap
  memory::HostSlab cpu_slab_;                                  // cpu with one
  Bytes cpu_slab_bytes_ = 0;
  std::unique_ptr<memory::Staging> staging_;  // others
  std::unique_ptr<residency::HostStore> store_;
  std::unique_ptr<residency::ResidencyManager> manager_;
};

}  // namespace lowtide::detail
