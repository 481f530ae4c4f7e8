#include "session/session_planner.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/checked_math.hpp"
#include "plan/slab_windows.hpp"
#include "session/ram_plan.hpp"

namespace lowtide::detail {
namespace {

constexpr int kCurvePoints = 8;
/// --low-vram: as slow as this times resident time is acceptable...
constexpr double kLowVramSlowdown = 1.2;
/// ...and more than this share of the resident peak is not.
constexpr double kLowVramShare = 0.4;

/// A smallest cap with split weights is worth a word when it is below this share of the exact one.
constexpr double kWorthSplitting = 0.98;

/// How one model runs under a cap.
struct Choice {
  std::shared_ptr<const Variant> variant;
  plan::ResidencyPlan residency;
  Bytes slab_begin = 0;
  double per_job_s = 0;
};

/// All models of a session under one cap.
struct Choices {
  std::map<std::size_t, Choice> models;
  Bytes job_bytes = 0;
  double per_job_s = 0;  // summed over the models
  double cycle_s = 0;    // all jobs of all models
};

/// Everything about the models that does not depend on the cap.
class Planners {
 public:
  Planners(const PlanRequest& request, const std::map<std::size_t, PlannedModel>& models)
      : context_(request.card.context_bytes),
        state_(request.state_bytes),
        fixed_(context_ + state_),
        keeps_(request.after_job == AfterJob::keep) {
    if (request.ram_cap) ram_ = divide_ram(*request.ram_cap, request.wave, models);
    for (const auto& [index, model] : models) {
      for (const ShapePlan& shape : model.shapes) {
        if (largest_ != nullptr && shape.peak_bytes <= largest_->peak_bytes) continue;
        largest_ = &shape;
        largest_model_ = model.data.get();
      }
      const ModelRequest of_model{.card = &request.card,
                                  .wave = request.wave,
                                  .jobs = std::max<std::size_t>(model.jobs, 1),
                                  .turns = model.turns,
                                  .keeps = keeps_,
                                  .allow_split = request.allow_split,
                                  .on_disk = ram_ ? &ram_->parts.at(index).on_disk : nullptr,
                                  .disk_bytes_per_s = kAssumedDiskRate,
                                  .jobs_room = ram_ ? ram_->jobs_bytes : 0};
      planners_.try_emplace(index, *model.data, model.shapes, of_model);
    }
  }

  bool keeps() const { return keeps_; }
  const std::optional<RamPlan>& ram() const { return ram_; }
  Bytes smallest_job_bytes() const {
    return most([](const ModelPlanner& planner) { return planner.smallest().job_bytes; });
  }
  Bytes smallest_slab_bytes() const {
    return most([](const ModelPlanner& planner) { return planner.smallest().search().min_slab_bytes(); });
  }
  Bytes full_slab_bytes() const {
    return most([](const ModelPlanner& planner) { return planner.full_slab_bytes(); });
  }
  /// With more than this nothing gets faster.
  Bytes useful_slab_bytes() const {
    Bytes sum = 0;
    for (const auto& [index, planner] : planners_) sum += planner.full_slab_bytes();
    return keeps_ ? sum : full_slab_bytes();
  }
  Bytes alone_bytes() const {
    return most([](const ModelPlanner& planner) { return planner.alone_bytes(); });
  }
  Bytes min_cap() const { return fixed_ + smallest_job_bytes() + smallest_slab_bytes(); }
  Bytes resident_peak() const { return full_slab_bytes() + alone_bytes(); }
  double resident_s() const {
    double sum = 0;
    for (const auto& [index, planner] : planners_) sum += planner.resident_s();
    return sum;
  }

  /// With split weights, where that helps.
  std::optional<Bytes> min_cap_split() const {
    Bytes most_bytes = 0;
    bool helps = false;
    for (const auto& [index, planner] : planners_) {
      const std::optional<Bytes> split = planner.smallest_split_bytes();
      helps = helps || (split && static_cast<double>(*split) <
                                     kWorthSplitting * static_cast<double>(planner.smallest_bytes()));
      most_bytes = std::max(most_bytes, std::min(split.value_or(UINT64_MAX), planner.smallest_bytes()));
    }
    return helps ? std::optional(fixed_ + most_bytes) : std::nullopt;
  }

  /// The fastest way for each model under the cap; nothing where it is too small. With several models, what
  /// their jobs need together with the largest slab must fit.
  std::optional<Choices> choose(Bytes cap) const {
    if (cap < fixed_) return std::nullopt;
    const Bytes room = cap - fixed_;
    Choices choices;
    for (const auto& [index, planner] : planners_) {
      auto variant = planner.fastest(room);
      if (!variant) return std::nullopt;
      choices.job_bytes = std::max(choices.job_bytes, variant->job_bytes);
      choices.models[index].variant = std::move(variant);
    }
    if (!settle(choices, room)) {
      choices.job_bytes = smallest_job_bytes();
      if (!settle(choices, room)) return std::nullopt;
    }
    const Bytes slab = room - choices.job_bytes;
    if (planners_.size() == 1) {
      for (auto& [index, choice] : choices.models)
        choice.residency = best_plan(choice, std::min(slab, choice.variant->search().full_slab_bytes()));
      total(choices, /*own_windows=*/false);
      return choices;
    }
    Choices shared = share(choices, slab);
    if (!keeps_) return shared;
    std::optional<Choices> divided = divide(choices, slab);
    return divided && divided->cycle_s <= shared.cycle_s ? std::move(*divided) : std::move(shared);
  }

  [[noreturn]] void refuse(Bytes cap) const {
    std::string message = "a cap of " + std::to_string(cap) +
                          " bytes is too small: the smallest that works is " + std::to_string(min_cap()) +
                          " (" + format_bytes(min_cap()) + "): weights " +
                          format_bytes(smallest_slab_bytes()) + ", activations and workspace " +
                          format_bytes(smallest_job_bytes()) + ", context " + format_bytes(context_) +
                          (state_ > 0 ? ", kept state " + format_bytes(state_) : "");
    const std::optional<Bytes> split = min_cap_split();
    if (split)
      message += "; with --allow-split " + std::to_string(*split) + " (" + format_bytes(*split) + ")";
    if (largest_ != nullptr && !largest_->largest_step.empty())
      message += "; '" + largest_model_->path().filename().string() + "' needs most at " +
                 largest_->largest_step + " with " + largest_->text;
    throw PlanInfeasible(message, min_cap(), split);
  }

 private:
  /// Each model's fastest variant that leaves `choices.job_bytes` to the jobs of all.
  bool settle(Choices& choices, Bytes room) const {
    for (const auto& [index, planner] : planners_) {
      auto variant = planner.fastest(room, choices.job_bytes);
      if (!variant) return false;
      choices.models[index].variant = std::move(variant);
    }
    return true;
  }

  plan::ResidencyPlan best_plan(const Choice& choice, Bytes slab) const {
    return choice.variant->search().plan(slab, keeps_);
  }

  /// Adds up the times.
  void total(Choices& choices, bool own_windows) const {
    choices.per_job_s = choices.cycle_s = 0;
    for (auto& [index, choice] : choices.models) {
      const ModelPlanner& planner = planners_.at(index);
      const double all_jobs_s = planner.cycle_s(*choice.variant, choice.residency, own_windows);
      choice.per_job_s = all_jobs_s / (planner.waves_of(*choice.variant) * choice.variant->walk.jobs);
      choices.per_job_s += choice.per_job_s;
      choices.cycle_s += all_jobs_s;
    }
  }

  /// All of the slab for each model in its turn. What stays for a model's next job is lost to the next model,
  /// so where turns are short, plans in which nothing stays can be better.
  Choices share(Choices choices, Bytes slab) const {
    for (auto& [index, choice] : choices.models) {
      const plan::ResidencySearch& search = choice.variant->search();
      double best_s = std::numeric_limits<double>::infinity();
      for (const Bytes bytes : search.slab_sizes()) {
        if (bytes > slab) break;
        for (const bool keeps : {true, false}) {  // of equals, the one that serves further jobs
          if (keeps && !keeps_) continue;
          plan::ResidencyPlan residency = search.plan(bytes, keeps);
          const double seconds = planners_.at(index).cycle_s(*choice.variant, residency, false);
          if (seconds >= best_s) continue;
          best_s = seconds;
          choice.residency = std::move(residency);
        }
      }
    }
    total(choices, /*own_windows=*/false);
    return choices;
  }

  /// A window of its own for each model; nothing where they do not fit.
  std::optional<Choices> divide(Choices choices, Bytes slab) const {
    std::vector<std::vector<plan::WindowOption>> options;
    for (const auto& [index, choice] : choices.models) {
      std::vector<plan::WindowOption>& of_model = options.emplace_back();
      for (const Bytes bytes : choice.variant->search().slab_sizes()) {
        if (bytes > slab) break;
        of_model.push_back(
            {bytes, planners_.at(index).cycle_s(*choice.variant, best_plan(choice, bytes), true)});
      }
    }
    const auto chosen = plan::divide_slab(options, slab);
    if (!chosen) return std::nullopt;
    Bytes begin = 0;
    std::size_t model = 0;
    for (auto& [index, choice] : choices.models) {
      choice.residency = best_plan(choice, options[model][(*chosen)[model]].bytes);
      choice.slab_begin = begin;
      begin += choice.residency.slab_bytes;
      ++model;
    }
    total(choices, /*own_windows=*/true);
    return choices;
  }

  template <class Of>
  Bytes most(Of of) const {
    Bytes result = 0;
    for (const auto& [index, planner] : planners_) result = std::max(result, of(planner));
    return result;
  }

  Bytes context_;
  Bytes state_;
  Bytes fixed_;  // both
  bool keeps_;
  std::optional<RamPlan> ram_;
  std::map<std::size_t, ModelPlanner> planners_;
  const ShapePlan* largest_ = nullptr;
  const ModelData* largest_model_ = nullptr;
};

/// Caps from the smallest to the one that keeps everything, the room for weights growing by a constant
/// factor.
std::vector<Bytes> cap_ladder(const Planners& planners) {
  const Bytes smallest = planners.smallest_slab_bytes();
  const Bytes full = planners.useful_slab_bytes();
  const Bytes rest = planners.min_cap() - smallest;
  std::vector<Bytes> ladder{rest + smallest};
  const double ratio = smallest == 0 ? 1 : static_cast<double>(full) / static_cast<double>(smallest);
  for (int i = 1; i <= kCurvePoints; ++i) {
    const double factor = std::pow(ratio, static_cast<double>(i) / kCurvePoints);
    const Bytes slab =
        i == kCurvePoints
            ? full
            : round_up(static_cast<Bytes>(static_cast<double>(smallest) * factor), plan::kGranule);
    if (rest + slab > ladder.back()) ladder.push_back(rest + slab);
  }
  return ladder;
}

Session::LowVramChoice choose_low_vram(const Planners& planners, Bytes fixed) {
  Session::LowVramChoice choice;
  choice.min_cap = planners.min_cap();
  const Bytes resident_peak = planners.resident_peak();
  choice.share_of_peak_cap = fixed + static_cast<Bytes>(kLowVramShare * static_cast<double>(resident_peak));
  const double limit = kLowVramSlowdown * planners.resident_s();
  const auto fast_enough = [&](Bytes cap) {
    const auto choices = planners.choose(cap);
    return choices && choices->per_job_s <= limit;
  };
  choice.near_resident_cap = fixed + resident_peak;
  const std::vector<Bytes> ladder = cap_ladder(planners);
  for (std::size_t i = 0; i < ladder.size(); ++i) {
    if (!fast_enough(ladder[i])) continue;
    Bytes good = ladder[i];  // refine between the rung that is too slow and this one
    Bytes slow = i == 0 ? good : ladder[i - 1];
    for (int k = 0; k < 6 && good - slow > plan::kGranule; ++k) {
      const Bytes middle = slow + round_up((good - slow) / 2, plan::kGranule);
      (fast_enough(middle) ? good : slow) = middle;
    }
    choice.near_resident_cap = good;
    break;
  }
  choice.chosen = std::max(choice.min_cap, std::min(choice.near_resident_cap, choice.share_of_peak_cap));
  return choice;
}

/// A wave that nobody could run is not asked for in vain.
void check_wave(const PlanRequest& request, const std::map<std::size_t, PlannedModel>& models) {
  if (request.wave <= 1 || models.empty()) return;
  for (const auto& [index, model] : models) {
    if (model.data->no_waves().empty()) return;
  }
  const ModelData& data = *models.begin()->second.data;
  throw UsageError("a wave of " + std::to_string(request.wave) + " has no effect on '" +
                   data.path().filename().string() + "': " + data.no_waves() +
                   ", so its jobs run one by one; leave --wave out");
}

}  // namespace

SessionPlan plan_session(const PlanRequest& request, std::map<std::size_t, PlannedModel> models) {
  check_wave(request, models);
  SessionPlan result;
  result.models = std::move(models);
  const Planners planners(request, result.models);
  result.context_bytes = request.card.context_bytes;
  result.state_bytes = request.state_bytes;
  result.ram = planners.ram();
  result.min_cap_bytes = planners.min_cap();
  result.min_cap_split_bytes = planners.min_cap_split();
  if (request.low_vram && !request.vram_cap)
    result.low_vram = choose_low_vram(planners, result.context_bytes + result.state_bytes);
  result.cap_bytes = request.vram_cap              ? *request.vram_cap
                     : result.low_vram.has_value() ? result.low_vram->chosen
                                                   : request.card.total_bytes;
  result.cap_bytes = std::min(result.cap_bytes, request.card.total_bytes);
  std::optional<Choices> choices = planners.choose(result.cap_bytes);
  if (!choices) planners.refuse(result.cap_bytes);
  result.job_bytes = choices->job_bytes;
  for (auto& [index, choice] : choices->models) {
    PlannedModel& model = result.models.at(index);
    const plan::ResidencySearch& search = choice.variant->search();
    model.variant = std::move(choice.variant);
    model.residency = std::move(choice.residency);
    model.slab_begin = choice.slab_begin;
    model.per_job_s = choice.per_job_s;
    model.smallest = search.plan(search.min_slab_bytes(), planners.keeps());
    model.schedule = plan::simulate(model.variant->problem, model.residency.fetches, !planners.keeps());
    result.slab_bytes = std::max(result.slab_bytes, model.slab_begin + model.residency.slab_bytes);
    result.exact = result.exact && model.variant->split_weights == 0;
  }
  result.kept_bytes = planners.keeps() ? result.slab_bytes + result.state_bytes : 0;
  return result;
}

std::vector<CapPoint> cap_curve(const PlanRequest& request, const SessionPlan& plan) {
  const Planners planners(request, plan.models);
  std::vector<CapPoint> curve;
  for (const Bytes cap : cap_ladder(planners)) {
    const auto choices = planners.choose(cap);
    if (!choices) continue;
    CapPoint point{.cap_bytes = cap, .predicted_s = choices->per_job_s};
    for (const auto& [index, choice] : choices->models) {
      point.resident_bytes += choice.residency.resident_bytes;
      point.streamed_bytes += choice.residency.streamed_bytes;
      point.wave = std::max(point.wave, choice.variant->walk.jobs);
    }
    // The plan of a smaller cap also works under this one.
    if (!curve.empty() && curve.back().predicted_s < point.predicted_s) {
      point = curve.back();
      point.cap_bytes = cap;
    }
    curve.push_back(point);
  }
  return curve;
}

}  // namespace lowtide::detail
