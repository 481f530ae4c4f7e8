// Plans as text for people.
#pragma once

#include <string>
#include <vector>

#include "lowtide/session.hpp"

namespace lowtide::app {

/// One line: "layout x f32[1, 3, 800, 608]: peak 31.2 MiB, smallest cap 20.1 MiB, ...".
std::string plan_line(const PlanSummary& plan);

/// The proof as a small table, one term a line.
std::string plan_table(const PlanSummary& plan);

/// Predicted time over the cap.
std::string curve_table(const std::vector<CapPoint>& curve);

/// The three numbers behind --low-vram and the choice.
std::string low_vram_text(const Session::LowVramChoice& choice);

}  // namespace lowtide::app
