#include "device/conformance/checks.hpp"

#include <algorithm>
#include <exception>

namespace lowtide::conformance {
namespace {

/// LibTorch appends a stack trace to its messages.
std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

}  // namespace

void Checks::that(const std::string& sentence, const std::string& detail, const Condition& holds) {
  made_.insert(sentence);
  try {
    if (!holds()) violations_.push_back({sentence, detail});
  } catch (const std::exception& error) {
    violations_.push_back({sentence, detail + (detail.empty() ? "" : ": ") + "threw " + error.what()});
  }
}

bool Checks::is_broken(const std::string& sentence) const {
  return std::any_of(violations_.begin(), violations_.end(),
                     [&](const Violation& violation) { return violation.check == sentence; });
}

std::string to_text(const Violations& violations) {
  constexpr std::size_t kShown = 10;
  std::string text;
  for (std::size_t i = 0; i < std::min(violations.size(), kShown); ++i) {
    text += "broken: " + violations[i].check;
    if (!violations[i].detail.empty()) text += " (" + first_line(violations[i].detail) + ")";
    text += '\n';
  }
  if (violations.size() > kShown) text += std::to_string(violations.size() - kShown) + " more\n";
  return text;
}

}  // namespace lowtide::conformance
