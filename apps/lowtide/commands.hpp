// The commands. Each returns an exit code or throws one of lowtide's errors.
#pragma once

#include "lowtide/command_line.hpp"

namespace lowtide::app {

int run(const RunCommand& command);
int plan(const PlanCommand& command);
int inspect(const InspectCommand& command);
int measure(const MeasureCommand& command);
int doctor();

}  // namespace lowtide::app
