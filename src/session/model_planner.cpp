#include "session/model_planner.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <tuple>

#include "base/checked_math.hpp"
#include "plan/schedule.hpp"

namespace lowtide::detail {
namespace {

using plan::StepCost;

/// Wave sizes that are tried; more jobs at once hardly lower the time of one.
constexpr std::array kWaveSizes{2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};
/// Into how many chunks the largest splittable weight is cut.
constexpr std::array<Bytes, 7> kSplits{2, 3, 4, 6, 8, 16, 32};
/// Variants that are planned in full, after all were ranked by the least time they can take.
constexpr std::size_t kPlannedVariants = 8;
/// A larger wave must be faster by this to be taken: its results come later.
constexpr double kWorthWaiting = 0.99;

double transfer_s(Bytes bytes, const device::sim::Card& card) {
  if (bytes == 0) return 0;
  return card.copy_latency_s + static_cast<double>(bytes) / card.link_pinned_bytes_per_s;
}

}  // namespace

const plan::ResidencySearch& Variant::search() const {
  if (!search_) search_ = std::make_unique<plan::ResidencySearch>(problem);
  return *search_;
}

ModelPlanner::ModelPlanner(const ModelData& model, const std::vector<ShapePlan>& shapes,
                           const ModelRequest& request)
    : model_(model), shapes_(shapes), request_(request) {
  bool exact_sizes = true;
  for (const ShapePlan& shape : shapes_) {
    memory_ = slowest_ == nullptr ? shape.profile.memory : plan::largest_of(memory_, shape.profile.memory);
    if (slowest_ == nullptr || shape.total_step_s > slowest_->total_step_s) slowest_ = &shape;
    exact_sizes = exact_sizes && shape.exact_sizes;
  }
  alone_ = make_alone();
  variants_.push_back(alone_);
  const bool waves = exact_sizes && model_.no_waves().empty() && request_.wave != 1 && request_.jobs > 1;
  if (waves) make_waves();
  if (model_.splittable().empty()) return;
  Bytes largest = 0;
  for (const plan::SplittableWeight& weight : model_.splittable())
    largest = std::max(largest, weight.rows * weight.row_bytes);
  for (const Bytes chunks : kSplits) {
    if (largest / chunks >= plan::kSmallStorage) splits_.push_back(make_split(ceil_div(largest, chunks)));
  }
}

void ModelPlanner::make_waves() {
  std::vector<int> sizes;
  const int most = static_cast<int>(std::min<std::size_t>(request_.jobs, kWaveSizes.back()));
  if (request_.wave > 1) {
    sizes.push_back(
        static_cast<int>(std::min<std::size_t>(static_cast<std::size_t>(request_.wave), request_.jobs)));
    variants_.clear();  // so many and no other number
  } else {
    for (const int size : kWaveSizes) {
      if (size < most) sizes.push_back(size);
    }
    sizes.push_back(most);
  }
  for (const auto& groups : plan::candidate_groups(model_.packing(), memory_)) {
    for (const int size : sizes) {
      for (const bool spill : {false, true}) {
        auto variant = make_wave(groups, size, spill);
        if (fits_host(*variant)) variants_.push_back(std::move(variant));
      }
    }
  }
}

/// Weights that stay in the file come at the disk's rate, and are read once a pass.
void ModelPlanner::mark_disk_units(Variant& variant) const {
  if (request_.on_disk == nullptr) return;
  for (std::size_t u = 0; u < variant.problem.units.size(); ++u) {
    if (!(*request_.on_disk)[variant.packing.content[u].front().storage]) continue;
    variant.problem.units[u].packed = true;
    variant.problem.units[u].source_bytes_per_s = request_.disk_bytes_per_s;
  }
}

/// Do the jobs of a wave, and what waits for them between groups, fit into their part of host memory?
bool ModelPlanner::fits_host(const Variant& variant) const {
  if (request_.on_disk == nullptr) return true;
  Bytes job = 0;
  for (const ShapePlan& shape : shapes_) job = std::max(job, shape.host_bytes);
  return static_cast<Bytes>(variant.walk.jobs) * (job + 2 * variant.spilled_bytes) <= request_.jobs_room;
}

std::shared_ptr<Variant> ModelPlanner::make_alone() const {
  auto variant = std::make_shared<Variant>();
  variant->packing = model_.packing();
  variant->walk = plan::single_walk(model_.program().graph.nodes.size());
  variant->problem.units = plan::units_on_walk(variant->packing, variant->walk);
  mark_disk_units(*variant);
  variant->problem.steps = plan::costs_on_walk(variant->walk, slowest_->profile.costs, {});
  variant->problem.begin_s = slowest_->inputs_s;
  variant->problem.begin_host_s = slowest_->inputs_host_s;
  variant->problem.end_s = slowest_->outputs_s + request_.card->synchronize_s;
  if (!variant->problem.steps.empty()) variant->problem.steps.back().host_s += slowest_->outputs_host_s;
  const device::sim::Card& card = *request_.card;
  variant->problem.link = {.bytes_per_s = card.link_pinned_bytes_per_s,
                           .latency_s = card.copy_latency_s,
                           .launch_s = card.launch_s};
  for (const ShapePlan& shape : shapes_) variant->job_bytes = std::max(variant->job_bytes, shape.peak_bytes);
  return variant;
}

std::shared_ptr<Variant> ModelPlanner::make_wave(const std::vector<plan::StepGroup>& groups, int jobs,
                                                 bool spill) const {
  auto variant = std::make_shared<Variant>();
  variant->packing = model_.packing();
  variant->walk = plan::wave_walk(groups, jobs);
  variant->spill = spill;
  variant->job_bytes = plan::wave_bytes(memory_, variant->walk, spill);
  plan::WaveTransfers transfers;
  transfers.restore_s.assign(groups.size(), 0);
  transfers.park_s.assign(groups.size(), 0);
  transfers.park_s.back() = slowest_->outputs_s;
  if (spill) {
    variant->spilled_bytes = plan::spilled_bytes(memory_, variant->walk);
    transfers.restore_s.front() = slowest_->inputs_s;
    for (std::size_t g = 1; g < groups.size(); ++g) {
      const Bytes bytes = memory_.before(groups[g]);
      transfers.restore_s[g] = transfers.park_s[g - 1] = transfer_s(bytes, *request_.card);
    }
  } else {
    variant->problem.begin_s = slowest_->inputs_s * jobs;
    variant->problem.begin_host_s = slowest_->inputs_host_s * jobs;
  }
  variant->problem.units = plan::units_on_walk(variant->packing, variant->walk);
  mark_disk_units(*variant);
  variant->problem.steps = plan::costs_on_walk(variant->walk, slowest_->profile.costs, transfers);
  variant->problem.end_s = request_.card->synchronize_s;
  variant->problem.link = alone_->problem.link;
  return variant;
}

std::shared_ptr<Variant> ModelPlanner::make_split(Bytes largest) const {
  auto variant = std::make_shared<Variant>();
  plan::SplitPacking split = plan::split_weights(model_.packing(), model_.splittable(),
                                                 model_.program().graph.nodes.size(), largest);
  variant->packing = std::move(split.packing);
  variant->split_weights = split.split_weights;
  variant->walk = plan::single_walk(model_.program().graph.nodes.size(), split.chunks_of_step);
  variant->problem = alone_->problem;
  variant->problem.units = plan::units_on_walk(variant->packing, variant->walk);
  mark_disk_units(*variant);
  variant->problem.steps = plan::costs_on_walk(variant->walk, slowest_->profile.costs, {});
  variant->problem.steps.back().host_s += slowest_->outputs_host_s;
  // Beside the result, a chunk's columns exist once more until they are copied into it.
  variant->job_bytes = alone_->job_bytes;
  for (std::size_t step = 0; step < split.chunks_of_step.size(); ++step) {
    const std::uint32_t chunks = split.chunks_of_step[step];
    if (chunks == 1) continue;
    Bytes result = 0;
    for (const ShapePlan& shape : shapes_) result = std::max(result, shape.result_bytes[step]);
    variant->job_bytes = std::max(
        variant->job_bytes,
        memory_.steps[step].peak + round_up(ceil_div(result, chunks), plan::kGranule) + 2 * plan::kGranule);
  }
  return variant;
}

const Variant& ModelPlanner::smallest() const {
  const Variant* best = nullptr;
  for (const auto& variant : variants_) {
    if (best != nullptr && variant->job_bytes >= best->smallest_bytes()) continue;  // searches take time
    if (best == nullptr || variant->smallest_bytes() < best->smallest_bytes()) best = variant.get();
  }
  return *best;
}

Bytes ModelPlanner::smallest_bytes() const {
  return smallest().smallest_bytes();
}

std::optional<Bytes> ModelPlanner::smallest_split_bytes() const {
  std::optional<Bytes> least;
  for (const auto& variant : splits_) {
    if (variant->split_weights > 0 && (!least || variant->smallest_bytes() < *least))
      least = variant->smallest_bytes();
  }
  return least;
}

double ModelPlanner::waves_of(const Variant& variant) const {
  return std::ceil(static_cast<double>(request_.jobs) / variant.walk.jobs);
}

/// Seconds of all known jobs, where so many waves begin with nothing on the device.
double ModelPlanner::all_jobs_s(const Variant& variant, const plan::ResidencyPlan& plan,
                                double empty_waves) const {
  const double steady = (waves_of(variant) - empty_waves) * plan.predicted_s;
  if (empty_waves == 0) return steady;
  return steady + empty_waves * plan::simulate(variant.problem, plan.fetches, /*first_job=*/true).total_s;
}

double ModelPlanner::cycle_s(const Variant& variant, const plan::ResidencyPlan& plan, bool own_window) const {
  const double turns = std::min(static_cast<double>(request_.turns), waves_of(variant));
  return all_jobs_s(variant, plan, own_window ? 0 : turns);
}

std::shared_ptr<const Variant> ModelPlanner::fastest(Bytes room, std::optional<Bytes> job_bytes) const {
  struct Ranked {
    std::shared_ptr<const Variant> variant;
    Bytes slab = 0;
    double least_s = 0;
  };
  std::vector<Ranked> ranked;
  const auto slab_of = [&](const Variant& variant) -> std::optional<Bytes> {
    const Bytes jobs = job_bytes.value_or(variant.job_bytes);
    if (variant.job_bytes > jobs || jobs > room) return std::nullopt;
    return room - jobs;
  };
  const Bytes weights = alone_->problem.exact_bytes();
  for (const auto& variant : variants_) {
    const std::optional<Bytes> slab = slab_of(*variant);
    if (!slab) continue;
    double host = 0, kernel = 0, upload = 0;
    for (const StepCost& cost : variant->problem.steps) {
      host += cost.host_s;
      kernel += cost.kernel_s;
      upload += cost.upload_s;
    }
    const Bytes stays = request_.keeps ? std::min(*slab, weights) : 0;
    const double copies = double(weights - stays) / variant->problem.link.bytes_per_s + upload;
    const double walk_s = std::max({host, kernel + upload, copies});
    ranked.push_back({variant, *slab, walk_s * waves_of(*variant) / static_cast<double>(request_.jobs)});
  }
  // Among those that could be about equally fast, small groups first: their weights wait for least room.
  std::stable_sort(ranked.begin(), ranked.end(), [](const Ranked& a, const Ranked& b) {
    const auto about = [](double s) { return std::floor(std::log(std::max(s, 1e-9)) / std::log(1.01)); };
    const std::size_t groups_a = a.variant->walk.groups.size();
    const std::size_t groups_b = b.variant->walk.groups.size();
    return std::tuple(about(a.least_s), groups_b) < std::tuple(about(b.least_s), groups_a);
  });
  std::shared_ptr<const Variant> best;
  double best_s = 0;
  std::size_t planned = 0;
  for (const Ranked& candidate : ranked) {
    const Variant& variant = *candidate.variant;
    if (best && (planned >= kPlannedVariants || candidate.least_s > best_s)) break;
    if (variant.search().min_slab_bytes() > candidate.slab) continue;
    if (ranked.size() == 1) return candidate.variant;
    ++planned;
    const Bytes useful = std::min(candidate.slab, variant.search().full_slab_bytes());
    const double seconds = all_jobs_s(variant, variant.search().quick(useful, request_.keeps), 1) /
                           static_cast<double>(request_.jobs);
    const bool larger = best && variant.walk.jobs > best->walk.jobs;
    const bool smaller = best && variant.walk.jobs < best->walk.jobs;
    if (!best || (larger    ? seconds < best_s * kWorthWaiting
                  : smaller ? seconds * kWorthWaiting < best_s
                            : seconds < best_s)) {
      best = candidate.variant;
      best_s = seconds;
    }
  }
  if (best || !request_.allow_split) return best;
  for (const auto& variant : splits_) {
    const std::optional<Bytes> slab = slab_of(*variant);
    if (slab && variant->search().min_slab_bytes() <= *slab) return variant;
  }
  return nullptr;
}

double ModelPlanner::resident_s() const {
  return alone_->search().plan(full_slab_bytes(), true).predicted_s;
}

}  // namespace lowtide::detail
