// The time/VRAM curve as a picture.
#pragma once

#include <string>
#include <string_view>

#include "lowtide/plan_page.hpp"

namespace lowtide::app {

/// An SVG document: predicted time of a job over the cap, one mark per point of the curve, the cap in force
/// as a dashed line. Between two points the plan of the lower one holds, hence steps.
std::string curve_svg(const PlanPage& page);

/// `text` as XML character data: markup escaped, what no XML document may hold (control characters, broken
/// UTF-8) replaced, at most `longest` characters.
std::string xml_text(std::string_view text, std::size_t longest);

}  // namespace lowtide::app
