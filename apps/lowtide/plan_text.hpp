// Plans in one line each, and the words that several pages share.
#pragma once

#include <string>

#include "lowtide/session.hpp"

namespace lowtide::app {

/// One line: "layout x f32[1, 3, 800, 608]: peak 31.2 MiB, smallest cap 20.1 MiB, ...".
std::string plan_line(const PlanSummary& plan);

/// The three numbers behind --low-vram and the choice.
std::string low_vram_text(const Session::LowVramChoice& choice);

/// The promised line of --low-vram on stderr, whatever else is quiet. Once per command.
void announce_low_vram(const Session& session);
/// What --low-vram has chosen, on stderr, once there is a plan.
void announce_choice(const Session& session);

/// "3.142 ms", "12.500 s".
std::string seconds_text(double seconds);

/// The text of a node down to what tells it from others: its name, its operator, its line of source.
std::string short_step(const std::string& step);

}  // namespace lowtide::app
