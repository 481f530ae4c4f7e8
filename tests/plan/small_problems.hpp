// Residency problems of many kinds, small enough to be searched exhaustively.
#pragma once

#include <algorithm>
#include <random>
#include <string>

#include "plan/residency_problem.hpp"
namespace lowtide::plan::test {

inline ResidencyProblem small_problem(std::mt19937& random, int i, std::string& kind) {
  static const char* kinds[] = {"balanced", "copy-bound", "compute-bound", "short beside long",
                                "repeated", "tied",       "packed",        "giant",
                                "uploads",  "state",      "no host"};
  const int k = i % 11;
  kind = kinds[k];
  ResidencyProblem p;
  const double MiB = 1 << 20;
  const std::size_t steps = (4 + random() % 6);
  std::size_t units = (4 + random() % 3);
  double load = 0;
  for (std::size_t u = 0; u < units; ++u) {
    Unit unit{.bytes = static_cast<Bytes>(MiB / 4) * (1 + random() % 16),
              .uses = {StepId(u * steps / units)}};
    if (random() % 3 == 0) unit.uses = {StepId((unit.uses[0] + random() % (steps)) % steps)};
    if (k == 4 && random() % 2 == 0) {
      unit.uses.push_back(random() % steps);
      unit.uses.push_back(random() % steps);
    }
    std::sort(unit.uses.begin(), unit.uses.end());
    unit.uses.erase(std::unique(unit.uses.begin(), unit.uses.end()), unit.uses.end());
    p.units.push_back(unit);
  }
  if (k == 5) p.units[0].uses = {0, StepId(steps - 1)};
  if (k == 6) {
    p.units[0].bytes = 1 << 18;
    p.units[0].packed = true;
    p.units[0].uses = {0, StepId(steps / 2), StepId(steps - 1)};
  }
  if (k == 7) p.units[random() % units].bytes = 24 << 20;
  if (k == 9) p.units[random() % units].state = true;
  for (auto& u : p.units) load += p.link.latency_s + u.bytes / p.link.bytes_per_s;
  const double factor = k == 1 ? 0.1 : k == 2 ? 4 : k == 0 ? 1 : 0.3 + 0.1 * (random() % 15);
  double sum = 0;
  for (std::size_t s = 0; s < steps; ++s) {
    double x = 1 + random() % 10;
    if (k == 3) x = random() % 2 ? 1 : 20;
    p.steps.push_back({.kernel_s = x});
    sum += x;
  }
  for (auto& s : p.steps) {
    s.kernel_s *= factor * load / sum;
    if (k == 8 && random() % 3 == 0) s.upload_s = 1e-5 + 1e-6 * (random() % 100);
    if (k == 10 && random() % 2 == 0) s.host_s = 0;
  }
  if (random() % 4 == 0) p.begin_s = 5e-5, p.end_s = 2e-5;
  return p;
}
}  // namespace lowtide::plan::test
