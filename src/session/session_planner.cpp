#include "session/session_planner.hpp"

#include <algorithm>
#include <cmath>

#include "base/checked_math.hpp"
#include "plan/schedule.hpp"

namespace lowtide::detail {
namespace {

using plan::ResidencySearch;

constexpr int kCurvePoints = 8;
/// --low-vram: as slow as this times resident time is acceptable...
constexpr double kLowVramSlowdown = 1.2;
/// ...and more than this share of the resident peak is not.
constexpr double kLowVramShare = 0.4;

/// Everything about the models that does not depend on the cap.
struct Needs {
  std::map<std::size_t, ResidencySearch> searches;
  Bytes job_bytes = 0;
  Bytes min_slab = 0;
  Bytes full_slab = 0;
  const ShapePlan* largest = nullptr;
  const ModelData* largest_model = nullptr;
};

Needs collect_needs(const PlanRequest& request, std::map<std::size_t, PlannedModel>& models) {
  Needs needs;
  for (auto& [index, model] : models) {
    const ShapePlan* slowest = nullptr;
    for (const ShapePlan& shape : model.shapes) {
      if (needs.largest == nullptr || shape.peak_bytes > needs.job_bytes) {
        needs.job_bytes = shape.peak_bytes;
        needs.largest = &shape;
        needs.largest_model = model.data.get();
      }
      if (slowest == nullptr || shape.total_step_s > slowest->total_step_s) slowest = &shape;
    }
    model.problem = residency_problem(*model.data, *slowest, request.card);
    const auto [search, fresh] = needs.searches.try_emplace(index, model.problem);
    needs.min_slab = std::max(needs.min_slab, search->second.min_slab_bytes());
    needs.full_slab = std::max(needs.full_slab, search->second.full_slab_bytes());
  }
  return needs;
}

/// Slab sizes from the smallest to the full one, each a constant factor above the one before.
std::vector<Bytes> slab_ladder(Bytes smallest, Bytes full) {
  std::vector<Bytes> ladder{smallest};
  const double ratio = smallest == 0 ? 1 : static_cast<double>(full) / static_cast<double>(smallest);
  for (int i = 1; i <= kCurvePoints; ++i) {
    const double factor = std::pow(ratio, static_cast<double>(i) / kCurvePoints);
    const Bytes slab =
        i == kCurvePoints
            ? full
            : round_up(static_cast<Bytes>(static_cast<double>(smallest) * factor), plan::kGranule);
    if (slab > ladder.back()) ladder.push_back(slab);
  }
  return ladder;
}

/// Predicted time of one job of each model, summed, with a slab of this size.
double predicted(const Needs& needs, Bytes slab, bool keeps) {
  double total = 0;
  for (const auto& [index, search] : needs.searches)
    total += search.plan(std::max(search.min_slab_bytes(), std::min(slab, search.full_slab_bytes())), keeps)
                 .predicted_s;
  return total;
}

Session::LowVramChoice choose_low_vram(const Needs& needs, Bytes context, bool keeps) {
  Session::LowVramChoice choice;
  choice.min_cap = context + needs.min_slab + needs.job_bytes;
  const Bytes resident_peak = needs.full_slab + needs.job_bytes;
  choice.share_of_peak_cap = context + static_cast<Bytes>(kLowVramShare * static_cast<double>(resident_peak));
  const double limit = kLowVramSlowdown * predicted(needs, needs.full_slab, true);
  choice.near_resident_cap = context + resident_peak;
  const std::vector<Bytes> ladder = slab_ladder(needs.min_slab, needs.full_slab);
  for (std::size_t i = 0; i < ladder.size(); ++i) {
    if (predicted(needs, ladder[i], keeps) > limit) continue;
    Bytes good = ladder[i];  // refine between the rung that is too slow and this one
    Bytes slow = i == 0 ? good : ladder[i - 1];
    for (int k = 0; k < 6 && good - slow > plan::kGranule; ++k) {
      const Bytes middle = round_up(slow + (good - slow) / 2, plan::kGranule);
      (predicted(needs, middle, keeps) > limit ? slow : good) = middle;
    }
    choice.near_resident_cap = context + good + needs.job_bytes;
    break;
  }
  choice.chosen = std::max(choice.min_cap, std::min(choice.near_resident_cap, choice.share_of_peak_cap));
  return choice;
}

[[noreturn]] void refuse(const Needs& needs, Bytes cap, Bytes min_cap, Bytes context) {
  std::string message =
      "a cap of " + std::to_string(cap) + " bytes is too small: the smallest that works is " +
      std::to_string(min_cap) + " (" + format_bytes(min_cap) + "): weights " + format_bytes(needs.min_slab) +
      ", activations and workspace " + format_bytes(needs.job_bytes) + ", context " + format_bytes(context);
  if (needs.largest != nullptr && !needs.largest->largest_step.empty())
    message += "; '" + needs.largest_model->path().filename().string() + "' needs most at " +
               needs.largest->largest_step + " with " + needs.largest->text;
  throw PlanInfeasible(message, min_cap);
}

}  // namespace

SessionPlan plan_session(const PlanRequest& request, std::map<std::size_t, PlannedModel> models) {
  SessionPlan result;
  result.models = std::move(models);
  const Needs needs = collect_needs(request, result.models);
  const bool keeps = request.after_job == AfterJob::keep;
  result.context_bytes = request.card.context_bytes;
  result.job_bytes = needs.job_bytes;
  result.min_cap_bytes = result.context_bytes + needs.min_slab + needs.job_bytes;
  if (request.low_vram && !request.vram_cap)
    result.low_vram = choose_low_vram(needs, result.context_bytes, keeps);
  result.cap_bytes = request.vram_cap              ? *request.vram_cap
                     : result.low_vram.has_value() ? result.low_vram->chosen
                                                   : request.card.total_bytes;
  result.cap_bytes = std::min(result.cap_bytes, request.card.total_bytes);
  if (result.cap_bytes < result.min_cap_bytes)
    refuse(needs, result.cap_bytes, result.min_cap_bytes, result.context_bytes);

  const Bytes room = result.cap_bytes - result.context_bytes - result.job_bytes;
  for (auto& [index, model] : result.models) {
    const ResidencySearch& search = needs.searches.at(index);
    model.residency = search.plan(std::min(room, search.full_slab_bytes()), keeps);
    const plan::Schedule schedule = plan::simulate(model.problem, model.residency.fetches, !keeps);
    model.compute_s = schedule.compute_s;
    model.copy_s = schedule.copy_s;
    result.slab_bytes = std::max(result.slab_bytes, model.residency.slab_bytes);
  }
  result.kept_bytes = keeps ? result.slab_bytes : 0;
  return result;
}

std::vector<CapPoint> cap_curve(const PlanRequest& request, const SessionPlan& plan) {
  std::map<std::size_t, PlannedModel> models = plan.models;
  const Needs needs = collect_needs(request, models);
  const bool keeps = request.after_job == AfterJob::keep;
  std::vector<CapPoint> curve;
  for (const Bytes slab : slab_ladder(needs.min_slab, needs.full_slab)) {
    CapPoint point{.cap_bytes = plan.context_bytes + needs.job_bytes + slab};
    for (const auto& [index, search] : needs.searches) {
      const plan::ResidencyPlan residency =
          search.plan(std::max(search.min_slab_bytes(), std::min(slab, search.full_slab_bytes())), keeps);
      point.predicted_s += residency.predicted_s;
      point.resident_bytes += residency.resident_bytes;
      point.streamed_bytes += residency.streamed_bytes;
    }
    // The plan of a smaller cap also works under this one.
    if (!curve.empty() && curve.back().predicted_s < point.predicted_s) {
      const Bytes cap = point.cap_bytes;
      point = curve.back();
      point.cap_bytes = cap;
    }
    curve.push_back(point);
  }
  return curve;
}

PlanSummary summarise_in_place(const PlannedModel& model, const ShapePlan& shape) {
  PlanSummary summary;
  summary.model = model.data->path().stem().string();
  summary.shapes = shape.text;
  summary.bounded = shape.bounded;
  summary.activation_bytes = shape.activation_bytes;
  summary.activation_lower_bound_bytes = shape.activation_bytes;
  summary.workspace_bytes = shape.peak_bytes - shape.activation_bytes;
  summary.workspace_state = shape.state;
  summary.largest_step = shape.largest_step;
  return summary;
}

PlanSummary summarise(const SessionPlan& plan, const PlannedModel& model, const ShapePlan& shape) {
  PlanSummary summary = summarise_in_place(model, shape);
  summary.context_bytes = plan.context_bytes;
  summary.kept_bytes = plan.kept_bytes;
  summary.peak_bytes = plan.context_bytes + plan.slab_bytes + shape.peak_bytes;
  summary.min_cap_bytes = plan.min_cap_bytes;
  summary.resident_bytes = model.residency.resident_bytes;
  summary.streamed_bytes_per_pass = model.residency.streamed_bytes;
  summary.predicted_s = model.residency.predicted_s;
  summary.compute_s = model.compute_s;
  summary.copy_s = model.copy_s;
  summary.stall_s = model.residency.stall_s;
  return summary;
}

}  // namespace lowtide::detail
