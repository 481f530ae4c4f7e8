#include "lowtide/plan_text.hpp"

#include <array>
#include <cmath>
#include <cstdio>

namespace lowtide::app {

std::string plan_line(const PlanSummary& plan) {
  std::string text = plan.model + " " + plan.shapes;
  const std::string disk = plan.ram ? ", " + format_bytes(plan.ram->weight_bytes) +
                                          " of weights in memory, " + format_bytes(plan.disk_bytes_per_pass) +
                                          " from disk" + (plan.wave > 1 ? " a wave" : " a job")
                                    : "";
  if (!plan.peak_bytes && plan.ram) return text + ": weights in slots" + disk;
  if (!plan.peak_bytes) return text + ": weights in place, nothing capped";
  text += ": peak " + format_bytes(*plan.peak_bytes) + ", smallest cap " + format_bytes(*plan.min_cap_bytes) +
          ", resident " + format_bytes(plan.resident_bytes) + ", streamed " +
          format_bytes(plan.streamed_bytes_per_pass) + (plan.wave > 1 ? " a wave" : " a job");
  text += disk;
  if (plan.wave > 1) text += ", waves of " + std::to_string(plan.wave) + " jobs";
  if (!plan.exact) text += ", not exact";
  if (plan.predicted_s) text += ", predicted " + seconds_text(*plan.predicted_s) + " a job";
  return text;
}

std::string low_vram_text(const Session::LowVramChoice& choice) {
  return "cap " + format_bytes(choice.chosen) + " chosen: within 20 % of resident time from " +
         format_bytes(choice.near_resident_cap) + ", 40 % of the resident peak is " +
         format_bytes(choice.share_of_peak_cap) + ", the smallest that works is " +
         format_bytes(choice.min_cap);
}

void announce_low_vram(const Session& session) {
  if (!session.low_vram()) return;
  std::fputs("[Memory] CPU-first mode: ALL models on CPU, moved to the device layer by layer\n", stderr);
}

void announce_choice(const Session& session) {
  const auto choice = session.low_vram_choice();
  if (choice) std::fprintf(stderr, "lowtide: %s\n", low_vram_text(*choice).c_str());
}

std::string seconds_text(double seconds) {
  constexpr double kMilli = 1e-3;
  std::array<char, 48> text;
  const bool whole = std::abs(seconds) >= 1;
  std::snprintf(text.data(), text.size(), whole ? "%.3f s" : "%.3f ms", whole ? seconds : seconds / kMilli);
  return text.data();
}

std::string short_step(const std::string& step) {
  std::string text = step.substr(0, step.find('('));
  if (const std::size_t source = step.rfind("   # "); source != std::string::npos)
    text += ", " + step.substr(source + 5);
  return text;
}

}  // namespace lowtide::app
