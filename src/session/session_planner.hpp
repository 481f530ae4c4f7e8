// One plan for all jobs of a session: the cap, the slab for weights, the residency of each model, the proof.
// Arithmetic only: no device.
//
//   cap >= context + slab + highest need of any job beside the weights
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "lowtide/options.hpp"
#include "lowtide/session.hpp"
#include "plan/residency_search.hpp"
#include "session/shape_plan.hpp"

namespace lowtide::detail {

/// One model and all its planned shapes.
struct PlannedModel {
  std::shared_ptr<const ModelData> data;
  std::vector<ShapePlan> shapes;
  plan::ResidencyProblem problem;  // at the shape that takes longest
  plan::ResidencyPlan residency;
  double compute_s = 0;
  double copy_s = 0;
};

struct SessionPlan {
  Bytes cap_bytes = 0;
  Bytes min_cap_bytes = 0;
  Bytes context_bytes = 0;
  Bytes slab_bytes = 0;
  Bytes kept_bytes = 0;
  Bytes job_bytes = 0;  // highest need of any job beside the weights
  std::optional<Session::LowVramChoice> low_vram;
  std::map<std::size_t, PlannedModel> models;  // by handle index
};

struct PlanRequest {
  device::sim::Card card;
  std::optional<Bytes> vram_cap;
  bool low_vram = false;
  AfterJob after_job = AfterJob::keep;
};

/// `models` come with data and shapes; the rest is filled in. Throws PlanInfeasible.
SessionPlan plan_session(const PlanRequest& request, std::map<std::size_t, PlannedModel> models);

/// The curve of predicted time over the cap, from the smallest cap to the one that keeps everything; for the
/// model that needs most.
std::vector<CapPoint> cap_curve(const PlanRequest& request, const SessionPlan& plan);

/// What users see of one model at one shape.
PlanSummary summarise(const SessionPlan& plan, const PlannedModel& model, const ShapePlan& shape);
/// The same on the cpu, where nothing is capped and weights are used in place.
PlanSummary summarise_in_place(const PlannedModel& model, const ShapePlan& shape);

}  // namespace lowtide::detail
