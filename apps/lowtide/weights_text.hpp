// What a plan keeps on the device, what it copies again and again, and what never comes.
#pragma once

#include <string>

#include "lowtide/plan_summary.hpp"

namespace lowtide::app {

/// Neighbours of one fate stand in one line, and only the largest such runs are listed; with `verbose` every
/// unit is. Empty where nothing is moved.
std::string weights_text(const PlanSummary& plan, bool verbose);

}  // namespace lowtide::app
