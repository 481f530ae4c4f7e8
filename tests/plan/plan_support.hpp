// Small residency problems for the planner's tests, and an independent check of what a plan must guarantee.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "plan/residency_plan.hpp"

namespace lowtide::plan::test {

/// `layers` units of equal size, one step each.
inline ResidencyProblem equal_layers(std::size_t layers, Bytes bytes, double step_s) {
  ResidencyProblem problem;
  for (StepId i = 0; i < layers; ++i) {
    problem.units.push_back({.name = "layer " + std::to_string(i), .bytes = bytes, .uses = {i}});
    problem.steps.push_back({.kernel_s = step_s});
  }
  return problem;
}

/// Plays a plan against memory: every unit must lie undamaged in its slot at each step that uses it. Returns
/// what went wrong, or "". Written without the planner's own data structures: a byte map of the slab, one
/// granule a cell.
inline std::string play(const ResidencyProblem& problem, const ResidencyPlan& plan, bool first_job) {
  const std::size_t cells = (plan.slab_bytes + kGranule - 1) / kGranule;
  std::vector<long> owner(cells, -1);
  const auto fill = [&](const Fetch& fetch) -> std::string {
    const Bytes end = fetch.offset + problem.units[fetch.unit].bytes;
    if (end > plan.slab_bytes || fetch.offset % kGranule != 0)
      return "a unit leaves the slab or is misaligned";
    for (std::size_t c = fetch.offset / kGranule; c < (end + kGranule - 1) / kGranule; ++c)
      owner[c] = fetch.unit;
    return "";
  };
  if (!first_job) {
    for (const Fetch& fetch : plan.fetches)
      if (fetch.resident && !problem.units[fetch.unit].state) fill(fetch);
  }
  std::size_t next = 0;
  const auto issue = [&](long step) -> std::string {
    for (; next < plan.fetches.size() && plan.fetches[next].free_after <= step; ++next) {
      if (!first_job && plan.fetches[next].resident && !problem.units[plan.fetches[next].unit].state)
        continue;
      if (std::string wrong = fill(plan.fetches[next]); !wrong.empty()) return wrong;
    }
    return "";
  };
  if (std::string wrong = issue(-1); !wrong.empty()) return wrong;
  std::map<UnitId, const Fetch*> place;
  for (StepId step = 0; step < problem.steps.size(); ++step) {
    for (const Fetch& fetch : plan.fetches)
      if (fetch.first_use == step) place[fetch.unit] = &fetch;
    for (UnitId unit = 0; unit < problem.units.size(); ++unit) {
      for (const StepId use : problem.units[unit].uses) {
        if (use != step) continue;
        if (place.count(unit) == 0)
          return "unit " + std::to_string(unit) + " has no place at step " + std::to_string(step);
        const Fetch& fetch = *place[unit];
        for (Bytes at = fetch.offset; at < fetch.offset + problem.units[unit].bytes; at += kGranule)
          if (owner[at / kGranule] != static_cast<long>(unit))
            return "unit " + std::to_string(unit) + " is not intact at step " + std::to_string(step);
      }
    }
    if (std::string wrong = issue(step); !wrong.empty()) return wrong;
  }
  return "";
}

}  // namespace lowtide::plan::test
