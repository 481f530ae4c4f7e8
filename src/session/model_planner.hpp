// The ways in which the jobs of one model can run, and which is best in so much memory: one job at a time, in
// waves over groups of layers, with split weights. Arithmetic only.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "device/sim/card.hpp"
#include "plan/residency_search.hpp"
#include "plan/walk.hpp"
#include "session/shape_plan.hpp"

namespace lowtide::detail {

/// One way to run.
struct Variant {
  plan::Walk walk;
  plan::Packing packing;           // units with their uses as steps of the graph
  plan::ResidencyProblem problem;  // units with their uses as positions of the walk
  Bytes job_bytes = 0;             // of a whole wave, beside the weights
  Bytes spilled_bytes = 0;         // of one job over all groups, each way
  bool spill = false;              // between groups, activations wait in host memory
  std::size_t split_weights = 0;

  /// Reached through a function, since it looks at `problem`.
  const plan::ResidencySearch& search() const;
  Bytes smallest_bytes() const { return job_bytes + search().min_slab_bytes(); }

 private:
  mutable std::unique_ptr<plan::ResidencySearch> search_;
};

struct ModelRequest {
  const device::sim::Card* card = nullptr;
  int wave = 1;           // 0: as many as is best
  std::size_t jobs = 1;   // that are known to come
  std::size_t turns = 0;  // of them, how many come after a job of another model
  bool keeps = true;      // residents survive from job to job
  bool allow_split = false;
  /// With a cap on host memory: per storage, whether it is read from disk, and what jobs may take on the
  /// host.
  const std::vector<bool>* on_disk = nullptr;
  double disk_bytes_per_s = 0;
  Bytes jobs_room = 0;
};

/// Of one model and all its planned shapes, which must outlive it. Not thread-safe.
class ModelPlanner {
 public:
  ModelPlanner(const ModelData& model, const std::vector<ShapePlan>& shapes, const ModelRequest& request);

  /// The least memory, context left out, in which some variant runs.
  Bytes smallest_bytes() const;
  /// The same where weights may be split; nothing where none can be.
  std::optional<Bytes> smallest_split_bytes() const;
  /// The least that a job takes beside the weights, and the smallest slab, of the variant that needs least.
  const Variant& smallest() const;
  Bytes full_slab_bytes() const { return alone_->search().full_slab_bytes(); }
  /// What one job alone takes beside the weights.
  Bytes alone_bytes() const { return alone_->job_bytes; }

  /// The fastest variant in `room` bytes of which at most `job_bytes` go to jobs, the rest to weights (each
  /// variant only its own, if nothing is given). Null when none fits.
  std::shared_ptr<const Variant> fastest(Bytes room, std::optional<Bytes> job_bytes = std::nullopt) const;
  /// Seconds that all known jobs take again and again. `own_window`: what stays on the device is still there
  /// when the model's turn comes again; if not, each turn begins with nothing.
  double cycle_s(const Variant& variant, const plan::ResidencyPlan& plan, bool own_window) const;
  /// Waves in which the known jobs come.
  double waves_of(const Variant& variant) const;
  /// Seconds per job with everything resident.
  double resident_s() const;

 private:
  std::shared_ptr<Variant> make_alone() const;
  std::shared_ptr<Variant> make_wave(const std::vector<plan::StepGroup>& groups, int jobs, bool spill) const;
  std::shared_ptr<Variant> make_split(Bytes largest) const;
  void mark_disk_units(Variant& variant) const;
  bool fits_host(const Variant& variant) const;
  void make_waves();
  double all_jobs_s(const Variant& variant, const plan::ResidencyPlan& plan, double empty_waves) const;

  const ModelData& model_;
  const std::vector<ShapePlan>& shapes_;
  ModelRequest request_;
  plan::JobMemory memory_;  // the largest of all shapes
  const ShapePlan* slowest_ = nullptr;
  std::shared_ptr<Variant> alone_;
  std::vector<std::shared_ptr<Variant>> variants_;  // that keep results exact
  std::vector<std::shared_ptr<Variant>> splits_;    // from large chunks to small
};

}  // namespace lowtide::detail
