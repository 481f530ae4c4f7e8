// How a cap on host memory is divided, and which weights stay in the archive file for it. Arithmetic only.
//
//   cap >= program + graphs + tables + jobs + ring + weights that are held (on the cpu: slots for weights)
//
// docs/architecture.md, "The disk tier", has the reasons.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "plan/residency_search.hpp"
#include "session/session_planner.hpp"

namespace lowtide::detail {

/// What weights are assumed to come from disk with, when plans are made: a plain SATA drive or a modest NVMe
/// one reaches 0.5 to 3 GB/s. Nothing depends on it but predicted times and the choice among plans of equal
/// bytes.
inline constexpr double kAssumedDiskRate = 1e9;

/// Memory patterns may take this under a cap on host memory.
inline constexpr Bytes kPatternBytesUnderCap = 4_MiB;

/// Divides `cap` among the models of a session on a device. `wave`: as in SessionOptions. Throws
/// RamCapTooSmall.
RamPlan divide_ram(Bytes cap, int wave, const std::map<std::size_t, PlannedModel>& models);

/// How one model runs on the cpu under a cap: weights in slots in host memory.
struct SlotPlan {
  std::shared_ptr<const ModelData> data;
  std::vector<ShapePlan> shapes;
  std::shared_ptr<const plan::Packing> packing;  // without tables that are looked up
  plan::ResidencyPlan residency;
};

/// All models of a session on the cpu.
struct CpuPlan {
  RamPlan ram;
  std::map<std::size_t, SlotPlan> models;
};

/// `models` come with data and shapes. Throws RamCapTooSmall.
CpuPlan plan_slots(Bytes cap, const std::map<std::size_t, PlannedModel>& models);

/// What a job of this shape takes on the cpu beside the weights.
Bytes slot_job_bytes(const ShapePlan& shape);

/// Puts what the cap does to one model into its summary.
void add_ram(PlanSummary& summary, const RamPlan& ram, const RamPart& part);

}  // namespace lowtide::detail
