#include "lowtide/plan_page.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "../tensor_file/temp_dir.hpp"
#include "lowtide/plan_text.hpp"
#include "lowtide/weights_text.hpp"

using namespace lowtide;
using namespace lowtide::app;
using namespace lowtide::test;

namespace {

PlanPage page_of_a_model() {
  PlanPage page;
  PlanSummary& plan = page.plan;
  plan.model = "layout";
  plan.shapes = "image f32[1, 3, 800, 608]";
  plan.context_bytes = 50_MiB;
  plan.activation_bytes = 10_MiB;
  plan.activation_lower_bound_bytes = 8_MiB;
  plan.workspace_bytes = 3_MiB;
  plan.peak_bytes = 50_MiB + 20_MiB + 10_MiB + 3_MiB;
  plan.min_cap_bytes = 81_MiB;
  plan.kept_bytes = 20_MiB;
  plan.streamed_bytes_per_pass = 12_MiB;
  plan.predicted_s = 4e-3;
  plan.compute_s = 1e-3;
  plan.copy_s = 2.5e-3;
  plan.stall_s = 1.5e-3;
  plan.stalls = {
      {"linear_3 = aten::linear(input=x, weight=w): f32[1, 8]   # linear.py:134 in forward", 1.25e-3}};
  plan.largest_step = "conv = aten::conv2d.default(input=x): f32[1]   # net.py:7 in forward";
  page.device = {.name = "default", .kind = "sim", .total_bytes = 8_GiB};
  page.cap = 85_MiB;
  page.curve = {{.cap_bytes = 81_MiB, .predicted_s = 4.5e-3, .resident_bytes = 0, .streamed_bytes = 40_MiB},
                {.cap_bytes = 84_MiB, .predicted_s = 4e-3, .resident_bytes = 8_MiB, .streamed_bytes = 12_MiB},
                {.cap_bytes = 120_MiB, .predicted_s = 1e-3, .resident_bytes = 40_MiB, .streamed_bytes = 0}};
  return page;
}

/// The line that holds `part`; empty where none does.
std::string line_with(const std::string& text, const std::string& part) {
  const std::size_t at = text.find(part);
  if (at == std::string::npos) return {};
  const std::size_t begin = text.rfind('\n', at) + 1;
  return text.substr(begin, text.find('\n', at) - begin);
}

void add_units(PlanSummary& plan, const std::string& prefix, int units, Bytes bytes, bool resident) {
  for (int i = 0; i < units; ++i)
    plan.weights.push_back(
        {.name = prefix + std::to_string(i) + ".weight", .bytes = bytes, .resident = resident});
}

}  // namespace

TEST_CASE("the proof adds up line by line and stands against the cap") {
  const std::string text = plan_page(page_of_a_model());
  CAPTURE(text);
  CHECK(contains(line_with(text, "context"), "52428800    50.0 MiB"));
  CHECK(contains(line_with(text, "weight slab"), "20971520    20.0 MiB"));
  CHECK(contains(line_with(text, "+ activations"),
                 "10.0 MiB  inputs, results, outputs, 1.250 x what is alive"));
  CHECK(contains(line_with(text, "operator workspace"), "3.0 MiB  bound"));
  CHECK(contains(line_with(text, "= peak"), "87031808    83.0 MiB  proved"));
  CHECK(contains(line_with(text, "  cap  "), "2.0 MiB above the peak"));
  CHECK(contains(line_with(text, "smallest cap"), "81.0 MiB"));
  CHECK(line_with(text, "--allow-split") == "");
  CHECK(contains(text, "  exact: the same bits"));
  CHECK(contains(line_with(text, "most is needed at"), "conv = aten::conv2d.default, net.py:7 in forward"));
}

TEST_CASE("a plan says where its promises end") {
  PlanPage page = page_of_a_model();
  page.plan.exact = false;
  page.plan.bounded = false;
  page.plan.workspace_state = WorkspaceState::learned;
  page.plan.min_cap_split_bytes = 60_MiB;
  page.plan.split_weights = 2;
  const std::string text = plan_page(page);
  CHECK(contains(text, "not exact"));
  CHECK(contains(text, "not bounded"));
  CHECK(contains(line_with(text, "= peak"), "not proved"));
  CHECK(contains(line_with(text, "operator workspace"), "learned"));
  CHECK(contains(line_with(text, "--allow-split"), "60.0 MiB"));
  CHECK(contains(text, "2 weights travel in chunks of rows"));
}

TEST_CASE("times are told with their parts, where compute waits, and whose figures they are") {
  PlanPage page = page_of_a_model();
  const std::string text = plan_page(page);
  CHECK(contains(text, "\ntime, on the simulated card 'default'\n"));
  CHECK(contains(line_with(text, "  a job "), "4.000 ms"));
  CHECK(contains(line_with(text, "compute waits"), "1.500 ms"));
  CHECK(contains(line_with(text, "linear_3"),
                 "1.250 ms  at linear_3 = aten::linear, linear.py:134 in forward"));
  page.device = {.name = "NVIDIA H200", .kind = "cuda", .total_bytes = 139_GiB};
  CHECK(contains(plan_page(page), "\ntime, predicted for NVIDIA H200\n"));
  page.verbose = true;
  CHECK(contains(plan_page(page), "aten::linear(input=x, weight=w)"));
}

TEST_CASE("waves are told where they were asked for, and only there") {
  PlanPage page = page_of_a_model();
  CHECK_FALSE(contains(plan_page(page), "waves\n"));
  CHECK_FALSE(contains(line_with(plan_page(page), "resident    streamed"), "wave"));
  page.wave_asked = 0;
  CHECK(contains(plan_page(page), "one job at a time"));
  CHECK(contains(line_with(plan_page(page), "resident    streamed"), "wave"));
  page.plan.wave = 4;
  page.plan.groups = 3;
  page.plan.spilled_bytes = 2_MiB;
  page.curve.front().wave = 8;
  const std::string text = plan_page(page);
  CAPTURE(text);
  CHECK(contains(text, "4 jobs pass 3 groups of layers together"));
  CHECK(contains(text, "2.0 MiB a job go to host memory"));
  CHECK(contains(line_with(text, "  a job "), "its share of 16.000 ms for the wave"));
  CHECK(contains(line_with(text, "linear_3"), "0.312 ms  at"));
  CHECK(line_with(text, "4.500 ms").ends_with("    8"));
}

TEST_CASE("the curve marks what the cap allows") {
  const std::string text = plan_page(page_of_a_model());
  CHECK(contains(line_with(text, "<- this cap"), "84.0 MiB"));
  CHECK(contains(line_with(text, "84.0 MiB"), "4.00 x"));
  CHECK(contains(line_with(text, "120.0 MiB"), "1.00 x"));
}

TEST_CASE("on the cpu nothing is said that only a device has") {
  PlanPage page;
  page.plan.model = "layout";
  page.plan.shapes = "x f32[1]";
  page.plan.activation_bytes = 1_MiB;
  page.device = {.name = "cpu", .kind = "cpu", .total_bytes = {}};
  const std::string text = plan_page(page);
  CHECK(contains(text, "on the cpu"));
  CHECK(contains(line_with(text, "activations"), "1.0 MiB"));
  for (const char* word : {"peak,", "slab", "smallest", "time", "weights\n", "kept"})
    CHECK_FALSE(contains(text, word));
}

TEST_CASE("four hundred units take a few lines, the largest among them, and all of them with verbose") {
  PlanSummary plan;
  plan.streamed_bytes_per_pass = 100_MiB;
  plan.kept_bytes = 1;
  add_units(plan, "encoder.layers.", 100, 1_MiB, true);
  for (int i = 0; i < 150; ++i) {  // one in two: no neighbours to join
    add_units(plan, "middle." + std::to_string(i) + ".", 1, i == 140 ? 64_MiB : 2_KiB, false);
    add_units(plan, "small." + std::to_string(i) + ".", 1, 1_KiB, true);
  }
  const std::string text = weights_text(plan, false);
  CAPTURE(text);
  CHECK(std::count(text.begin(), text.end(), '\n') < 20);
  CHECK(contains(line_with(text, "resident"), "250 units   100.1 MiB"));
  CHECK(contains(line_with(text, "streamed"), "150 units    64.3 MiB  100.0 MiB copied for every job"));
  CHECK(contains(text, "encoder.layers.{0.weight .. "));
  CHECK(contains(line_with(text, "middle.140."), "64.0 MiB"));
  CHECK(contains(text, "in 145 units more"));

  const std::string all = weights_text(plan, true);
  CHECK(std::count(all.begin(), all.end(), '\n') == 403);
  CHECK(contains(all, "small.77.0.weight"));
  CHECK(weights_text({}, false) == "");
}

TEST_CASE("tables that the host looks up and units that travel twice are named") {
  PlanSummary plan;
  plan.host_lookup_bytes = 44_MiB;
  plan.weights = {{.name = "tied", .bytes = 2_MiB, .copies_per_pass = 2, .stall_s = 1e-3}};
  plan.wave = 4;
  CHECK(contains(line_with(weights_text(plan, false), "looked up"), "44.0 MiB"));
  CHECK(contains(weights_text(plan, false), "copied for every wave"));
  CHECK(contains(line_with(weights_text(plan, true), "tied"), "copied 2 times, waited for 1.000 ms"));
}

TEST_CASE("the line of a plan says what is not the rule") {
  PlanSummary plan = page_of_a_model().plan;
  CHECK_FALSE(contains(plan_line(plan), "wave"));
  plan.wave = 3;
  plan.exact = false;
  CHECK(contains(plan_line(plan), "streamed 12.0 MiB a wave, waves of 3 jobs, not exact"));
}
