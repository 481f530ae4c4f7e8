#include "lowtide/weights_text.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <numeric>
#include <vector>

#include "lowtide/plan_text.hpp"
#include "tensor_file/file_error.hpp"

namespace lowtide::app {
namespace {

constexpr std::size_t kListedRuns = 5;
constexpr std::size_t kLongestName = 40;

/// Neighbouring units of one fate.
struct Run {
  const PlannedWeights* first = nullptr;
  const PlannedWeights* last = nullptr;
  std::size_t units = 0;
  Bytes bytes = 0;
};

/// Units and bytes of several runs.
template <class Iterator, class RunOf>
Run sum(Iterator from, Iterator to, RunOf run_of) {
  Run all;
  for (; from != to; ++from) {
    all.units += run_of(*from).units;
    all.bytes += run_of(*from).bytes;
  }
  return all;
}

std::vector<Run> runs_of(const PlanSummary& plan, bool resident) {
  std::vector<Run> runs;
  const PlannedWeights* before = nullptr;
  for (const PlannedWeights& unit : plan.weights) {
    if (unit.resident == resident) {
      if (before == nullptr || before->resident != resident) runs.push_back({.first = &unit});
      runs.back().last = &unit;
      ++runs.back().units;
      runs.back().bytes += unit.bytes;
    }
    before = &unit;
  }
  return runs;
}

/// The end of a name tells more than its beginning.
std::string shortened(const std::string& name) {
  if (name.size() <= kLongestName) return tensor_file::printable(name);
  return "..." + tensor_file::printable(name.substr(name.size() - kLongestName + 3));
}

/// "layers.{0.attn.weight .. 3.mlp.weight}, 24 units": what the two names share is said once.
std::string run_name(const Run& run) {
  if (run.units == 1) return shortened(run.first->name);
  const std::string &a = run.first->name, &b = run.last->name;
  std::size_t shared =
      static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  const std::size_t dot = shared == 0 ? std::string::npos : a.rfind('.', shared - 1);
  shared = dot == std::string::npos ? 0 : dot + 1;
  const std::string span = shortened(a.substr(shared)) + " .. " + shortened(b.substr(shared));
  return (shared == 0 ? span : shortened(a.substr(0, shared)) + "{" + span + "}") + ", " +
         std::to_string(run.units) + " units";
}

std::string count(std::size_t units) {
  return std::to_string(units) + (units == 1 ? " unit" : " units");
}

std::string row(const char* name, const std::string& units, Bytes bytes, const std::string& note) {
  std::array<char, 64> head;
  std::snprintf(head.data(), head.size(), "  %-14s %9s  %10s", name, units.c_str(),
                format_bytes(bytes).c_str());
  return head.data() + ("  " + note) + "\n";
}

std::string listed_row(Bytes bytes, const std::string& text) {
  std::array<char, 48> head;
  std::snprintf(head.data(), head.size(), "    %10s  ", format_bytes(bytes).c_str());
  return head.data() + text + "\n";
}

/// The largest runs in order of use, and one line for the rest.
std::string largest_runs(const std::vector<Run>& runs) {
  std::vector<std::size_t> order(runs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return runs[a].bytes > runs[b].bytes; });
  const auto rest = order.begin() + static_cast<std::ptrdiff_t>(std::min(order.size(), kListedRuns));
  std::sort(order.begin(), rest);
  std::string text;
  for (auto index = order.begin(); index != rest; ++index)
    text += listed_row(runs[*index].bytes, run_name(runs[*index]));
  const Run others = sum(rest, order.end(), [&](std::size_t index) { return runs[index]; });
  if (others.units > 0)
    text += listed_row(others.bytes, "in " + count(others.units) + " more, see --verbose");
  return text;
}

std::string every_unit(const PlanSummary& plan, bool resident) {
  std::string text;
  for (const PlannedWeights& unit : plan.weights) {
    if (unit.resident != resident) continue;
    std::string note = tensor_file::printable(unit.name);
    if (unit.copies_per_pass > 1) note += ", copied " + std::to_string(unit.copies_per_pass) + " times";
    if (unit.stall_s > 0) note += ", waited for " + seconds_text(unit.stall_s);
    text += listed_row(unit.bytes, note);
  }
  return text;
}

std::string part(const PlanSummary& plan, bool resident, bool verbose) {
  const std::vector<Run> runs = runs_of(plan, resident);
  const Run all = sum(runs.begin(), runs.end(), [](const Run& run) { return run; });
  if (all.units == 0) return {};
  const std::string note = resident ? "copied once, then kept"
                                    : format_bytes(plan.streamed_bytes_per_pass) + " copied for every " +
                                          (plan.wave > 1 ? "wave" : "job");
  return row(resident ? "resident" : "streamed", count(all.units), all.bytes, note) +
         (verbose ? every_unit(plan, resident) : largest_runs(runs));
}

}  // namespace

std::string weights_text(const PlanSummary& plan, bool verbose) {
  std::string text = part(plan, true, verbose) + part(plan, false, verbose);
  if (plan.host_lookup_bytes > 0)
    text += row("looked up", "", plan.host_lookup_bytes,
                "tables that stay in host memory: only the rows that a job asks for travel");
  if (plan.split_weights > 0)
    text += "  " + std::to_string(plan.split_weights) +
            (plan.split_weights == 1 ? " weight travels" : " weights travel") + " in chunks of rows\n";
  return text.empty() ? text : "weights\n" + text;
}

}  // namespace lowtide::app
