#include "lowtide/plan_text.hpp"

#include <array>
#include <cstdio>

namespace lowtide::app {
namespace {

std::string row(const char* name, Bytes bytes, const std::string& note = "") {
  std::array<char, 512> text;
  std::snprintf(text.data(), text.size(), "  %-24s %14llu  %10s  %s", name,
                static_cast<unsigned long long>(bytes), format_bytes(bytes).c_str(), note.c_str());
  std::string line = text.data();
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string milliseconds(double seconds) {
  std::array<char, 48> text;
  std::snprintf(text.data(), text.size(), "%.3f ms", seconds * 1e3);
  return text.data();
}

}  // namespace

std::string plan_line(const PlanSummary& plan) {
  std::string text = plan.model + " " + plan.shapes;
  if (!plan.peak_bytes) return text + ": weights in place, nothing capped";
  text += ": peak " + format_bytes(*plan.peak_bytes) + ", smallest cap " + format_bytes(*plan.min_cap_bytes) +
          ", resident " + format_bytes(plan.resident_bytes) + ", streamed " +
          format_bytes(plan.streamed_bytes_per_pass) + " a job";
  if (plan.predicted_s) text += ", predicted " + milliseconds(*plan.predicted_s);
  return text;
}

std::string plan_table(const PlanSummary& plan) {
  std::string text = plan.model + " with " + plan.shapes + "\n";
  if (plan.peak_bytes) {
    const Bytes slab = *plan.peak_bytes - plan.context_bytes - plan.activation_bytes - plan.workspace_bytes;
    text += row("context", plan.context_bytes);
    text += row("weight slab", slab,
                "resident " + format_bytes(plan.resident_bytes) + ", streamed " +
                    format_bytes(plan.streamed_bytes_per_pass) + " a job");
  }
  text += row("activations", plan.activation_bytes, "inputs, results, outputs at their highest");
  text += row("operator workspace", plan.workspace_bytes,
              plan.workspace_state == WorkspaceState::learned ? "learned: measured in an earlier run"
                                                              : "bound: upper limits by rule");
  if (plan.peak_bytes) {
    text +=
        row("= peak, proved", *plan.peak_bytes, plan.bounded ? "" : "not bounded: some sizes depend on data");
    text += row("smallest cap", *plan.min_cap_bytes);
    text += row("kept between jobs", plan.kept_bytes);
  }
  if (plan.predicted_s)
    text += "  predicted " + milliseconds(*plan.predicted_s) + " a job: compute " +
            milliseconds(plan.compute_s) + ", copies " + milliseconds(plan.copy_s) + ", waiting for copies " +
            milliseconds(plan.stall_s) + "\n";
  text += "  needs most at: " + plan.largest_step + "\n";
  return text;
}

std::string curve_table(const std::vector<CapPoint>& curve) {
  std::string text = "  cap          predicted     resident     streamed a job\n";
  for (const CapPoint& point : curve) {
    std::array<char, 160> line;
    std::snprintf(line.data(), line.size(), "  %-11s  %-12s  %-11s  %s\n",
                  format_bytes(point.cap_bytes).c_str(), milliseconds(point.predicted_s).c_str(),
                  format_bytes(point.resident_bytes).c_str(), format_bytes(point.streamed_bytes).c_str());
    text += line.data();
  }
  return text;
}

std::string low_vram_text(const Session::LowVramChoice& choice) {
  return "cap " + format_bytes(choice.chosen) + " chosen: within 20 % of resident time from " +
         format_bytes(choice.near_resident_cap) + ", 40 % of the resident peak is " +
         format_bytes(choice.share_of_peak_cap) + ", the smallest that works is " +
         format_bytes(choice.min_cap);
}

}  // namespace lowtide::app
