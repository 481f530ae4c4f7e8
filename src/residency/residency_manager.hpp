// Carries out a residency plan: copies units into their slots on a copy stream, ahead of use, and hands out
// leases. What the plan calls a step is a position of the walk (plan/walk).
//
// Order is kept by events alone, the host never waits inside a job: compute waits for the arrival of what it
// is about to read, the copy stream waits for the step after which a slot is free. Both waits are necessary
// and sufficient; there are no others, but for weights that could not be page-locked (bounce_ring) and for
// those that stay in the archive file (disk_feed): these are copied as they come from the disk, and the host
// waits for the disk where a step needs what is not there yet.
//
// On the cpu slots are host memory and copies are done when they return, so there is nothing to order, but
// for what comes from the file: a thread fills its slots, and the host waits for those that it is about to
// read.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "device/device.hpp"
#include "graph/weight_table.hpp"
#include "plan/residency_plan.hpp"
#include "plan/unit_packing.hpp"
#include "residency/bounce_ring.hpp"
#include "residency/disk_feed.hpp"
#include "residency/host_store.hpp"

namespace lowtide::residency {

class ResidencyManager;

/// State units by id, as bytes on the host.
using SavedState = std::map<plan::UnitId, at::Tensor>;

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
  /// Where the store leaves weights in the file: what they are read through, and the file.
  DiskTier* disk = nullptr;
  memory::FileIdentity file;
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
  /// wait. What is resident since an earlier job on the same slab is not copied again. Throws ArchiveError
  /// where weights stay in the file and it changed.
  void begin_job(const at::Tensor& slab);
  /// The weights of `step`, in order of steps. Throws ArchiveError when they cannot be read from the file.
  Lease acquire(plan::StepId step);
  /// Ends the job, after success or failure. The caller has synchronised the device.
  void end_job() noexcept;
  /// Forgets what is resident: the slab is about to go, or to serve another model.
  void forget_residents();

  /// What the program wrote into its state so far, on the host; to go on elsewhere. The device has been
  /// synchronised. Between begin_job() and end_job().
  SavedState save_state() const;
  /// Lets the slab go in the middle of a job, to go on with resume().
  void abandon_slab();
  /// Goes on before `position` with another plan and slab: what is in use there is copied anew, state from
  /// `state`. Only until end_job(): the next job needs the plan of the constructor's or set_plan().
  void resume(const at::Tensor& slab, const plan::ResidencyPlan& plan, plan::StepId position,
              const SavedState& state);
  /// Follows another plan from the next job on; nothing is resident then.
  void set_plan(const plan::ResidencyPlan& plan);

  /// A place inside a unit that is on the slab at `position`.
  struct Anchor {
    plan::UnitId unit = 0;
    std::int64_t offset = 0;
  };
  /// Nothing where `data` does not lie in a unit of the slab.
  std::optional<Anchor> find_anchor(const void* data, plan::StepId position) const;
  /// The same place after resume().
  void* at_anchor(const Anchor& anchor, plan::StepId position) const;
  const at::Tensor& slab() const { return slab_; }

 private:
  friend class Lease;
  struct View {  // a weight, or a chunk of its rows, inside a unit
    std::uint32_t weight;
    std::int64_t offset;  // bytes in the unit
    std::uint32_t chunk;
    std::uint32_t chunks;
  };

  void release(plan::StepId step) noexcept;
  void issue_up_to(std::int64_t step);
  void issue_all_of(plan::StepId step);
  void wait_for_slots();
  bool issue(std::size_t index, bool may_wait);
  bool copy_from_disk(plan::UnitId unit, std::byte* place, bool may_wait);
  void copy_from_host(plan::UnitId unit, std::byte* place);
  void read_ahead(plan::StepId position);
  bool travels(const plan::Fetch& fetch, plan::StepId position) const;
  bool is_saved(plan::UnitId unit) const;
  void compute_waits_for(std::size_t fetch);
  void restart(const at::Tensor& slab);
  const plan::Fetch* tenant(plan::UnitId unit, plan::StepId position) const;
  void place_views(const plan::Fetch& fetch);
  bool loaded(const plan::Fetch& fetch) const;

  device::Device device_;
  ResidencyInputs inputs_;
  PlaceWeight place_;
  std::vector<std::vector<View>> views_;    // per unit
  std::optional<c10::Stream> copy_stream_;  // nothing on the cpu
  BounceRing ring_;
  std::unique_ptr<DiskFeed> feed_;  // where weights stay in the file
  Bytes from_disk_ = 0;             // of the unit at next_issue_, what is copied already
  at::Tensor slab_;
  SavedState state_;                     // after resume(): where state comes from
  std::vector<bool> resident_;           // per unit: on the device since an earlier job
  std::vector<c10::Event> arrived_;      // per fetch
  std::vector<std::size_t> queued_;      // on the cpu, per fetch: copies of feed_ up to and with its own
  std::optional<c10::Event> step_done_;  // after which a slot is free
  std::size_t next_issue_ = 0;
  std::size_t next_use_ = 0;
  std::exception_ptr issue_error_;  // a copy failed in a destructor; thrown by the next acquire
};

}  // namespace lowtide::residency
