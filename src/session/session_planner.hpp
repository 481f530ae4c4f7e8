// One plan for all jobs of a session: the cap, the slab for weights, the residency of each model, the proof.
// Arithmetic only: no device.
//
//   cap >= context + kept state + slab + highest need of any job beside the weights
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "lowtide/options.hpp"
#include "lowtide/session.hpp"
#include "plan/schedule.hpp"
#include "session/model_planner.hpp"

namespace lowtide::detail {

/// What a cap on host memory leaves to one model.
struct RamPart {
  std::vector<bool> on_disk;  // per storage: stays in the archive file
  Bytes held_bytes = 0;       // of weights, in host memory
  Bytes disk_bytes = 0;       // of weights, in the file
  Bytes slab_bytes = 0;       // cpu: memory for slots

  bool operator==(const RamPart&) const = default;
};

/// How a cap on host memory is divided (ram_plan.hpp).
struct RamPlan {
  Bytes cap_bytes = 0;
  Bytes min_cap_bytes = 0;
  Bytes program_bytes = 0;               // beyond the start of the process, graphs included
  Bytes table_bytes = 0;                 // tables that are looked up on the host
  Bytes jobs_bytes = 0;                  // inputs, results and buffers for them; on the cpu activations
  Bytes ring_bytes = 0;                  // 0: nothing comes from disk
  Bytes piece_bytes = 0;                 // of the ring
  std::map<std::size_t, RamPart> parts;  // by handle index
};

/// One model and all its planned shapes.
struct PlannedModel {
  std::shared_ptr<const ModelData> data;
  std::vector<ShapePlan> shapes;
  std::size_t jobs = 0;   // that are known to come
  std::size_t turns = 0;  // of them, those that come after a job of another model
  std::shared_ptr<const Variant> variant;
  plan::ResidencyPlan residency;
  Bytes slab_begin = 0;          // where residency.slab_bytes of the slab begin
  double per_job_s = 0;          // in the steady state, turns included
  plan::ResidencyPlan smallest;  // with the least slab: what is left when memory goes missing
  plan::Schedule schedule;       // of one walk in the steady state

  int wave() const { return variant->walk.jobs; }
  /// Whether the other model's part of the slab is also this one's.
  bool shares_slab_with(const PlannedModel& other) const {
    return slab_begin < other.slab_begin + other.residency.slab_bytes &&
           other.slab_begin < slab_begin + residency.slab_bytes;
  }
};

struct SessionPlan {
  Bytes cap_bytes = 0;
  Bytes min_cap_bytes = 0;
  std::optional<Bytes> min_cap_split_bytes;
  Bytes context_bytes = 0;
  Bytes slab_bytes = 0;
  Bytes state_bytes = 0;  // of models that keep their state, during their jobs
  Bytes kept_bytes = 0;   // slab and state that stay between jobs
  Bytes job_bytes = 0;    // highest need of any job or wave beside the weights
  bool exact = true;
  std::optional<Session::LowVramChoice> low_vram;
  std::optional<RamPlan> ram;                  // with a RAM cap
  std::map<std::size_t, PlannedModel> models;  // by handle index
};

struct PlanRequest {
  device::sim::Card card;
  std::optional<Bytes> vram_cap;
  bool low_vram = false;
  AfterJob after_job = AfterJob::keep;
  int wave = 1;
  bool allow_split = false;
  std::optional<Bytes> ram_cap;
  Bytes state_bytes = 0;  // SessionPlan::state_bytes
};

/// `models` come with data, shapes and jobs; the rest is filled in. Throws PlanInfeasible.
SessionPlan plan_session(const PlanRequest& request, std::map<std::size_t, PlannedModel> models);

/// The curve of predicted time per job over the cap, from the smallest cap to the one that keeps everything;
/// summed over the models.
std::vector<CapPoint> cap_curve(const PlanRequest& request, const SessionPlan& plan);

/// What users see of one model of the plan at one shape.
PlanSummary summarise(const SessionPlan& plan, const PlannedModel& model, const ShapePlan& shape);
/// The same on the cpu, where nothing is capped and weights are used in place.
PlanSummary summarise_in_place(const PlannedModel& model, const ShapePlan& shape);

}  // namespace lowtide::detail
