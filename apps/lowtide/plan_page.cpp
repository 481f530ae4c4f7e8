#include "lowtide/plan_page.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "lowtide/plan_text.hpp"
#include "lowtide/weights_text.hpp"
#include "tensor_file/file_error.hpp"

namespace lowtide::app {
namespace {

/// "  context                         52428800    50.0 MiB  note", the note left out where there is none.
std::string row(const std::string& name, Bytes bytes, const std::string& note = "") {
  std::array<char, 96> text;
  std::snprintf(text.data(), text.size(), "  %-30s %14llu  %10s", name.c_str(),
                static_cast<unsigned long long>(bytes), format_bytes(bytes).c_str());
  return text.data() + (note.empty() ? "" : "  " + note) + "\n";
}

std::string time_row(const std::string& name, double seconds, const std::string& note = "") {
  std::array<char, 96> text;
  std::snprintf(text.data(), text.size(), "  %-30s %14s", name.c_str(), seconds_text(seconds).c_str());
  return text.data() + (note.empty() ? "" : "  " + note) + "\n";
}

/// Zero where the difference would be negative: a plan without a bound promises nothing.
Bytes rest(Bytes whole, Bytes part) {
  return whole - std::min(whole, part);
}

std::string jobs_text(int jobs) {
  return std::to_string(jobs) + (jobs == 1 ? " job" : " jobs");
}

std::string heading(const PlanPage& page) {
  const PlanSummary& plan = page.plan;
  std::string text = tensor_file::printable(plan.model) + ": " + plan.shapes + "\n";
  if (!plan.peak_bytes && plan.ram)
    return text + "on the cpu, RAM cap " + format_bytes(plan.ram->cap_bytes) +
           ": weights in slots in host memory\n";
  if (!plan.peak_bytes)
    return text + "on the cpu, where weights are used in place: nothing is moved or capped\n";
  text += figures_of(page.device);
  if (page.device.total_bytes) text += " with " + format_bytes(*page.device.total_bytes);
  if (page.cap) text += ", cap " + format_bytes(*page.cap);
  if (plan.ram) text += ", RAM cap " + format_bytes(plan.ram->cap_bytes);
  return text + "\n";
}

/// How far the proof reaches.
std::string reach(const PlanSummary& plan) {
  std::string text = plan.exact ? "  exact: the same bits at every cap and in every wave\n" : "";
  if (plan.split_weights > 0) text += "  not exact: weights are split, so last bits may differ\n";
  if (plan.padded) text += "  not exact: smaller jobs are padded to this shape, so last bits may differ\n";
  if (plan.bounded && plan.data_dependent)
    text += "  some sizes depend on data: their upper bounds are counted, jobs run one by one\n";
  if (!plan.bounded)
    text +=
        "  not bounded: some sizes depend on data; what exceeds the cap then fails its job, not the batch\n";
  return text;
}

/// How good their layout is.
std::string layout_text(const PlanSummary& plan) {
  if (plan.activation_lower_bound_bytes == 0) return "";
  char text[64];
  std::snprintf(
      text, sizeof(text), ", %.3f x what is alive at once",
      static_cast<double>(plan.activation_bytes) / static_cast<double>(plan.activation_lower_bound_bytes));
  return text;
}

std::string memory(const PlanPage& page) {
  const PlanSummary& plan = page.plan;
  const std::string plus = plan.peak_bytes ? "+ " : "";  // without a cap there is no sum
  std::string text = "memory\n";
  if (plan.peak_bytes) {
    text += row("  context", plan.context_bytes);
    text += row("+ weight slab",
                rest(*plan.peak_bytes, plan.context_bytes + plan.activation_bytes + plan.workspace_bytes));
  }
  const std::string together = plan.wave > 1 ? " of " + jobs_text(plan.wave) : "";
  text += row(plus + "activations", plan.activation_bytes,
              "inputs, results, outputs" + together + layout_text(plan));
  text += row(plus + "operator workspace", plan.workspace_bytes,
              plan.workspace_state == WorkspaceState::learned ? "learned: measured in an earlier run"
                                                              : "bound: upper limits by rule");
  if (plan.peak_bytes) {
    text += row("= peak", *plan.peak_bytes, plan.bounded ? "proved" : "not proved");
    if (page.cap)
      text += row("  cap", *page.cap, format_bytes(rest(*page.cap, *plan.peak_bytes)) + " above the peak");
    text += row("  smallest cap", *plan.min_cap_bytes, "one byte less is refused");
    if (plan.min_cap_split_bytes)
      text += row("  smallest with --allow-split", *plan.min_cap_split_bytes, "last bits may differ");
    text += row("  kept between jobs", plan.kept_bytes);
    text += reach(plan);
  }
  if (!plan.largest_step.empty())
    text +=
        "  most is needed at " + (page.verbose ? plan.largest_step : short_step(plan.largest_step)) + "\n";
  return text;
}

/// The disk tier.
std::string host_memory(const PlanPage& page) {
  const PlanSummary& plan = page.plan;
  if (!plan.ram) return {};
  const RamSummary& ram = *plan.ram;
  std::string text = "host memory\n";
  text += row("  program and graphs", ram.program_bytes, "allowed for, beyond the program's start");
  text += row("+ jobs", ram.jobs_bytes,
              plan.peak_bytes ? "inputs, results, buffers for them" : "inputs, results, activations");
  text += row("+ ring", ram.ring_bytes, "through which weights come from disk");
  text += row("+ weights", ram.weight_bytes, plan.peak_bytes ? "held in memory" : "that stay in memory");
  text += row("  RAM cap", ram.cap_bytes);
  text += row("  smallest RAM cap", ram.min_cap_bytes, "one byte less is refused");
  text += row("  from disk", plan.disk_bytes_per_pass,
              plan.disk_bytes_per_pass == 0 ? ""
              : plan.wave > 1               ? "read for every wave"
                                            : "read for every job");
  return text;
}

/// The shapes that jobs are padded to; the page is about the largest.
std::string buckets(const PlanPage& page) {
  if (page.buckets.empty()) return {};
  std::string text = "buckets\n";
  for (const PlanSummary& plan : page.buckets) {
    text += "  " + tensor_file::printable(plan.shapes) + ": ";
    text += plan.peak_bytes ? "peak " + format_bytes(*plan.peak_bytes)
                            : "activations " + format_bytes(plan.activation_bytes);
    text += plan.shapes == page.plan.shapes ? "  <- this page\n" : "\n";
  }
  return text;
}

std::string waves(const PlanPage& page) {
  const PlanSummary& plan = page.plan;
  if (plan.wave <= 1 && page.wave_asked == 1) return {};
  if (plan.wave <= 1) return "waves\n  none: one job at a time is best here, or all that this model allows\n";
  std::string text = "waves\n  " + jobs_text(plan.wave) + " pass " + std::to_string(plan.groups) +
                     (plan.groups == 1 ? " group" : " groups") + " of layers together\n";
  if (plan.spilled_bytes > 0)
    text +=
        "  " + format_bytes(plan.spilled_bytes) + " a job go to host memory between groups, and come back\n";
  return text;
}

std::string time(const PlanPage& page) {
  const PlanSummary& plan = page.plan;
  if (!plan.predicted_s) return {};
  std::string text = "time, " + figures_of(page.device) + "\n";
  const double wave_s = *plan.predicted_s * plan.wave;
  text += time_row("a job", *plan.predicted_s,
                   plan.wave > 1 ? "its share of " + seconds_text(wave_s) + " for the wave" : "");
  if (plan.disk_bytes_per_pass > 0) text += "  weights from disk are assumed to come with 1 GB/s\n";
  text += time_row("  compute", plan.compute_s);
  text += time_row("  copies", plan.copy_s, plan.copy_s > 0 ? "beside compute as far as they can" : "");
  text += time_row("  compute waits for copies", plan.stall_s);
  for (const PlannedStall& stall : plan.stalls)  // a wave waits once for all its jobs
    text +=
        time_row("", stall.seconds / plan.wave, "at " + (page.verbose ? stall.step : short_step(stall.step)));
  return text;
}

/// The last point of the curve that the cap allows; null where there is none.
const CapPoint* point_in_force(const PlanPage& page) {
  const CapPoint* chosen = nullptr;
  for (const CapPoint& point : page.curve)
    if (page.cap && point.cap_bytes <= *page.cap) chosen = &point;
  return chosen;
}

std::string curve(const PlanPage& page) {
  if (page.curve.empty()) return {};
  const bool in_waves =
      page.wave_asked != 1 || std::any_of(page.curve.begin(), page.curve.end(),
                                          [](const CapPoint& point) { return point.wave != 1; });
  double best = page.curve.front().predicted_s;
  for (const CapPoint& point : page.curve) best = std::min(best, point.predicted_s);
  const CapPoint* in_force = point_in_force(page);
  std::string text = "time over cap, " + figures_of(page.device) + "\n";
  text += "         cap          a job              resident    streamed";
  text += in_waves ? "   wave\n" : "\n";
  for (const CapPoint& point : page.curve) {
    std::array<char, 192> line;
    std::snprintf(line.data(), line.size(), "  %10s  %13s  %6.2f x  %10s  %10s",
                  format_bytes(point.cap_bytes).c_str(), seconds_text(point.predicted_s).c_str(),
                  best > 0 ? point.predicted_s / best : 1.0, format_bytes(point.resident_bytes).c_str(),
                  format_bytes(point.streamed_bytes).c_str());
    text += line.data();
    if (in_waves) {
      std::snprintf(line.data(), line.size(), "  %5d", point.wave);
      text += line.data();
    }
    text += &point == in_force ? "  <- this cap\n" : "\n";
  }
  return text;
}

}  // namespace

std::string figures_of(const DeviceSummary& device) {
  const std::string name = tensor_file::printable(device.name);
  return device.kind == "sim" ? "on the simulated card '" + name + "'" : "predicted for " + name;
}

std::string plan_page(const PlanPage& page) {
  std::string text = heading(page) + "\n" + memory(page);
  std::string low_vram = page.low_vram ? "low-vram\n  " + low_vram_text(*page.low_vram) + "\n" : "";
  for (const std::string& section :
       {host_memory(page), low_vram, buckets(page), weights_text(page.plan, page.verbose), waves(page),
        time(page), curve(page)})
    if (!section.empty()) text += "\n" + section;
  return text;
}

}  // namespace lowtide::app
