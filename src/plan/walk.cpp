#include "plan/walk.hpp"

#include <algorithm>

namespace lowtide::plan {

Walk single_walk(std::size_t steps, std::span<const std::uint32_t> chunks) {
  Walk walk;
  walk.groups.push_back({0, static_cast<StepId>(steps)});
  for (StepId step = 0; step < steps; ++step) {
    const std::uint32_t count = chunks.empty() ? 1 : chunks[step];
    for (std::uint32_t chunk = 0; chunk < count; ++chunk)
      walk.positions.push_back({.step = step, .chunk = chunk, .chunks = count});
  }
  return walk;
}

Walk wave_walk(std::vector<StepGroup> groups, int jobs) {
  Walk walk{.jobs = jobs, .groups = std::move(groups)};
  for (const StepGroup& group : walk.groups) {
    for (const Pass pass : {Pass::first, Pass::middle, Pass::last}) {
      if (pass == Pass::middle && jobs == 2) continue;
      for (StepId step = group.begin; step < group.end; ++step)
        walk.positions.push_back({.step = step, .pass = pass});
    }
  }
  return walk;
}

std::vector<Unit> units_on_walk(const Packing& packing, const Walk& walk) {
  const StepId steps = walk.groups.empty() ? 0 : walk.groups.back().end;
  std::vector<std::vector<StepId>> positions_of(steps);
  std::vector<std::size_t> group_of(steps);
  for (std::size_t g = 0; g < walk.groups.size(); ++g) {
    for (StepId step = walk.groups[g].begin; step < walk.groups[g].end; ++step) group_of[step] = g;
  }
  // Where the middle jobs of a group begin and end.
  std::vector<std::pair<StepId, StepId>> middle(walk.groups.size(), {0, 0});
  for (StepId p = 0; p < walk.positions.size(); ++p) {
    const Position& position = walk.positions[p];
    const StepGroup& group = walk.groups[group_of[position.step]];
    if (position.pass != Pass::middle) {
      positions_of[position.step].push_back(p);
    } else if (position.step == group.begin) {
      middle[group_of[position.step]] = {p, p + (group.end - group.begin) - 1};
    }
  }
  std::vector<Unit> units = packing.units;
  for (std::size_t u = 0; u < units.size(); ++u) {
    Unit& unit = units[u];
    const PackedStorage& piece = packing.content[u].front();
    // A view of a weight points to its place: such a unit is used at every step from first to last.
    const bool views = unit.uses.size() > 1 && unit.uses.back() - unit.uses.front() + 1 == unit.uses.size();
    std::vector<StepId> uses;
    for (const StepId step : unit.uses) {
      if (piece.chunks > 1) {
        uses.push_back(positions_of[step][piece.chunk]);
        continue;
      }
      uses.insert(uses.end(), positions_of[step].begin(), positions_of[step].end());
      if (walk.jobs > 2) {
        uses.push_back(middle[group_of[step]].first);
        uses.push_back(middle[group_of[step]].second);
      }
    }
    std::sort(uses.begin(), uses.end());
    uses.erase(std::unique(uses.begin(), uses.end()), uses.end());
    unit.uses = std::move(uses);
    unit.packed = unit.packed || (views && walk.is_wave());
  }
  return units;
}

std::vector<StepCost> costs_on_walk(const Walk& walk, std::span<const StepCost> steps,
                                    const WaveTransfers& transfers) {
  std::vector<StepCost> costs;
  costs.reserve(walk.positions.size());
  std::size_t group = 0;
  for (const Position& position : walk.positions) {
    while (position.step >= walk.groups[group].end) ++group;
    StepCost cost = steps[position.step];
    if (position.chunks > 1) cost.kernel_s /= position.chunks;  // the host submits every chunk anew
    const double jobs = position.pass == Pass::middle ? walk.jobs - 2 : 1;
    if (!transfers.restore_s.empty() && position.step == walk.groups[group].begin)
      cost.upload_s += transfers.restore_s[group];
    if (!transfers.park_s.empty() && position.step + 1 == walk.groups[group].end)
      cost.kernel_s += transfers.park_s[group];
    costs.push_back({cost.host_s * jobs, cost.kernel_s * jobs, cost.upload_s * jobs, cost.waits});
  }
  return costs;
}

}  // namespace lowtide::plan
