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

/// Not thread-safe. Holds no device memory between jobs, except through the weights placed in its executor.
class LoadedModel {
 public:
  /// `pool`: of the session, which outlives the model.
  LoadedModel(std::shared_ptr<const ModelData> data, const device::Device& device,
              residency::WeightPool& pool);

  const ModelData& data() const { return *data_; }
  const device::Device& device() const { return device_; }
  exec::Executor& executor() { return executor_; }
  /// Only with a plan, not on the cpu.
  residency::ResidencyManager& residency() { return *manager_; }
  memory::Staging& staging() { return *staging_; }

  /// Follows this plan from the next job on. What was resident is forgotten. The plan must outlive its use.
  void use_plan(const PlannedModel& plan);
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
  void run_in_place(JobRun& job, const std::atomic<bool>& cancel);
  /// After a run, successful or not, when the device has been synchronised: nothing of it is left.
  void finish_jobs();

 private:
  void place_cpu_weights();
  JobOutput output(const JobRun& job, const graph::GraphOutput& output);

  std::shared_ptr<const ModelData> data_;
  device::Device device_;
  exec::Executor executor_;
  std::vector<std::vector<graph::ValueId>> values_of_weight_;  // per weight: graph inputs that are it
  std::unique_ptr<MappedWeights> mapped_;                      // cpu
  std::unique_ptr<memory::Staging> staging_;                   // others
  std::unique_ptr<residency::HostStore> store_;
  std::unique_ptr<residency::ResidencyManager> manager_;
};

}  // namespace lowtide::detail
