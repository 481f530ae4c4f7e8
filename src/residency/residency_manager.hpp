// Carries out a residency plan: copies units into their slots on a copy stream, ahead of use, and hands out
// leases.
//
// Order is kept by events alone, the host never waits inside a job: compute waits for the arrival of what it
// is about to read, the copy stream waits for the step after which a slot is free. Both waits are necessary
// and sufficient; there are no others.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "device/device.hpp"
#include "graph/weight_table.hpp"
#include "plan/residency_plan.hpp"
#include "plan/unit_packing.hpp"
#include "residency/host_store.hpp"

namespace lowtide::residency {

class ResidencyManager;

/// The weights of one step are on the device while this lives. Move-only; must not outlive the job.
class Lease {
 public:
  Lease() = default;
  Lease(Lease&& other) noexcept : manager_(std::exchange(other.manager_, nullptr)), step_(other.step_) {}
  Lease& operator=(Lease&& other) noexcept;
  ~Lease() { release(); }

  /// Gives the slots of the step free; copies that waited for them are issued.
  void release() noexcept;

 private:
  friend class ResidencyManager;
  Lease(ResidencyManager& manager, plan::StepId step) : manager_(&manager), step_(step) {}

  ResidencyManager* manager_ = nullptr;
  plan::StepId step_ = 0;
};

/// What the manager works on; all of it must outlive the manager.
struct ResidencyInputs {
  const HostStore* store = nullptr;
  const plan::Packing* packing = nullptr;
  const plan::ResidencyPlan* plan = nullptr;
  const graph::WeightTable* weights = nullptr;
};

/// One model on one device. Not thread-safe: one job at a time.
class ResidencyManager {
 public:
  /// Called with (index of the weight, tensor on the device) when a weight has a new place; before its first
  /// use.
  using PlaceWeight = std::function<void(std::uint32_t weight, const at::Tensor& tensor)>;

  ResidencyManager(const device::Device& device, ResidencyInputs inputs, PlaceWeight place);
  ~ResidencyManager();

  /// Starts a job on `slab` (at least plan->slab_bytes; 512-byte aligned): issues the copies that need not
  /// wait. What is resident since an earlier job on the same slab is not copied again.
  void begin_job(const at::Tensor& slab);
  /// The weights of `step`, in order of steps.
  Lease acquire(plan::StepId step);
  /// Ends the job, after success or failure. The caller has synchronised the device.
  void end_job();
  /// Forgets what is resident: the slab is about to go, or to serve another model.
  void forget_residents();

 private:
  friend class Lease;
  struct View {  // a weight inside a unit
    std::uint32_t weight;
    std::int64_t offset;  // bytes in the unit
  };

  void release(plan::StepId step) noexcept;
  void issue_up_to(std::int64_t step);
  void issue(std::size_t index);
  void place_views(const plan::Fetch& fetch);
  bool loaded(const plan::Fetch& fetch) const;

  device::Device device_;
  ResidencyInputs inputs_;
  PlaceWeight place_;
  std::vector<std::vector<View>> views_;  // per unit
  c10::Stream copy_stream_;
  at::Tensor slab_;
  std::vector<bool> resident_;           // per unit: on the device since an earlier job
  std::vector<c10::Event> arrived_;      // per fetch
  std::optional<c10::Event> step_done_;  // after which a slot is free
  std::size_t next_issue_ = 0;
  std::size_t next_use_ = 0;
  std::exception_ptr issue_error_;  // a copy failed in a destructor; thrown by the next acquire
};

}  // namespace lowtide::residency
