// A model of an open session: bound to the device, with its weights at hand.
#pragma once

#include <memory>
#include <vector>

#include "device/device.hpp"
#include "exec/executor.hpp"
#include "plan/residency_plan.hpp"
#include "residency/host_store.hpp"
#include "residency/residency_manager.hpp"
#include "session/mapped_weights.hpp"
#include "session/model_data.hpp"

namespace lowtide::detail {

/// Not thread-safe. Holds no device memory between jobs, except through the weights placed in its frame.
class LoadedModel {
 public:
  LoadedModel(std::shared_ptr<const ModelData> data, const device::Device& device);

  const ModelData& data() const { return *data_; }

  /// Follows this plan from the next job on. What was resident is forgotten. The plan must outlive its use.
  void use_plan(const plan::ResidencyPlan& plan);
  /// Forgets what is on the slab: it is going away, or serves another model.
  void forget_device();

  /// Checks the inputs against the signature and sets them for the next run; on a device, copies them there.
  void set_inputs(const std::vector<at::Tensor>& inputs);
  /// Runs on `slab` (undefined on the cpu). Leaves only outputs and weights in the frame.
  void run(const at::Tensor& slab, const std::atomic<bool>& cancel);
  /// Results on the host, in flattened order; empties the frame.
  std::vector<at::Tensor> take_outputs();
  /// After a run, successful or not: drops what is left, tells the residency manager.
  void finish_job();

 private:
  void place_cpu_weights();
  void place_empty_weights();
  at::Tensor output(const graph::GraphOutput& output) const;

  std::shared_ptr<const ModelData> data_;
  device::Device device_;
  exec::Executor executor_;
  std::vector<std::vector<graph::ValueId>> values_of_weight_;  // per weight: graph inputs that are it
  std::unique_ptr<MappedWeights> mapped_;                      // cpu
  std::unique_ptr<residency::HostStore> store_;                // others
  std::unique_ptr<residency::ResidencyManager> manager_;
};

}  // namespace lowtide::detail
