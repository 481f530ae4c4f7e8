// The order in which the steps of a plan happen: the graph's steps one after the other for one job, groups of
// steps passed by all jobs of a wave, steps repeated for the chunks of a split weight. A position of the walk
// is what the residency problem calls a step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/unit_packing.hpp"

namespace lowtide::plan {

/// Steps [begin, end) of the graph.
struct StepGroup {
  StepId begin = 0;
  StepId end = 0;
  bool operator==(const StepGroup&) const = default;
};

/// Which jobs of a wave are at a position. The jobs between first and last pass the group as a whole, one
/// after the other; their positions stand for all of them together.
enum class Pass : std::uint8_t { only, first, middle, last };

struct Position {
  StepId step = 0;
  Pass pass = Pass::only;
  std::uint32_t chunk = 0;  // of the step's split weight
  std::uint32_t chunks = 1;
};

struct Walk {
  int jobs = 1;
  std::vector<StepGroup> groups;
  std::vector<Position> positions;  // group by group: first pass, middle pass, last pass, in order of steps

  bool is_wave() const { return jobs > 1; }
};

/// One job. `chunks` per step: of its split weight; empty where nothing is split.
Walk single_walk(std::size_t steps, std::span<const std::uint32_t> chunks = {});
/// At least two jobs over these groups, which cover all steps.
Walk wave_walk(std::vector<StepGroup> groups, int jobs);

/// The units with their uses as positions of the walk. In a wave a unit is used from the first pass of its
/// group to the last.
std::vector<Unit> units_on_walk(const Packing& packing, const Walk& walk);

/// Transfers of one job between host and device, in seconds, beside the weights.
struct WaveTransfers {
  std::vector<double> restore_s;  // per group: what must be on the device before the job passes it
  std::vector<double> park_s;     // per group: what leaves the device behind it
};

/// What the positions cost, from the steps' costs of one job. `transfers` is empty where nothing moves
/// between groups.
std::vector<StepCost> costs_on_walk(const Walk& walk, std::span<const StepCost> steps,
                                    const WaveTransfers& transfers);

}  // namespace lowtide::plan
