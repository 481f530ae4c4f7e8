// The report has every field of its definition, as a number or null.
#include <doctest/doctest.h>

#include "e2e/e2e_support.hpp"

using namespace lowtide;
using namespace lowtide::test;

namespace {

using Names = std::vector<const char*>;

const Names kPlanNumbers{"peak_bytes",
                         "min_cap_bytes",
                         "min_cap_split_bytes",
                         "context_bytes",
                         "library_bytes",
                         "kept_bytes",
                         "resident_bytes",
                         "streamed_bytes_per_pass",
                         "activation_bytes",
                         "wave",
                         "activation_lower_bound_bytes",
                         "workspace_bytes",
                         "predicted_s"};
const Names kMeasuredNumbers{"context_bytes",
                             "kept_bytes",
                             "library_bytes",
                             "peak_bytes",
                             "reserved_peak_bytes",
                             "h2d_bytes",
                             "h2d_copies",
                             "d2h_bytes",
                             "disk_read_bytes",
                             "weight_bytes",
                             "pinned_bytes",
                             "host_peak_bytes",
                             "device_allocs_steady",
                             "plan_hits",
                             "plan_misses",
                             "fragmentation",
                             "wall_s",
                             "modelled_s",
                             "stall_s"};
const Names kJobNumbers{"wall_s", "modelled_s", "peak_bytes", "used_after_bytes", "h2d_bytes"};

void check_numbers(const nlohmann::json& object, const Names& names) {
  for (const char* name : names) {
    CAPTURE(name);
    CHECK(object.contains(name));
    if (object.contains(name)) CHECK((object[name].is_number() || object[name].is_null()));
  }
}

void check_known(const nlohmann::json& object, const Names& names) {
  for (const char* name : names) {
    CAPTURE(name);
    CHECK(object.at(name).is_number());
  }
}

void check_form(const nlohmann::json& report) {
  REQUIRE(report.is_object());
  CHECK(report.at("schema") == 1);
  CHECK(report.at("version").is_string());
  CHECK(report.at("device").at("name").is_string());
  CHECK(report.at("device").at("kind").is_string());
  check_numbers(report.at("device"), {"total_bytes"});
  CHECK(report.at("threads").is_number());
  check_numbers(report, {"cap_bytes"});
  CHECK(report.at("low_vram").is_boolean());
  check_numbers(report.at("plan"), kPlanNumbers);
  for (const char* name : {"exact", "bounded", "workspace_state"}) CHECK(report["plan"].contains(name));
  for (const auto& plan : report.at("plans")) check_numbers(plan, kPlanNumbers);
  check_numbers(report.at("measured"), kMeasuredNumbers);
  CHECK(report["measured"].contains("output_sha256"));
  for (const auto& model : report.at("models")) {
    CHECK(model.at("name").is_string());
    CHECK(model.at("role").is_string());
    check_numbers(model, {"weight_bytes", "runs"});
  }
  for (const auto& job : report.at("jobs")) {
    CHECK(job.at("id").is_string());
    CHECK(job.at("status").is_string());
    CHECK(job.contains("error"));
    check_numbers(job, kJobNumbers);
  }
}

}  // namespace

TEST_CASE("a run on the simulated card knows all that the card can tell") {
  const Workplace place;
  const Archive archive = model("ocr_cls");
  const Reported run =
      place.run(archive.path, archive.inputs, {"--device", "sim:1GiB", "--vram-cap", "64MiB"});
  REQUIRE(run.outcome.code == 0);
  check_form(run.report);
  CHECK(run.report.at("device").at("kind") == "sim");
  CHECK(run.report.at("device").at("total_bytes") == (1U << 30));
  CHECK(run.report.at("cap_bytes") == (64U << 20));
  CHECK(run.report.at("low_vram") == false);
  check_known(run.plan(), {"peak_bytes", "min_cap_bytes", "kept_bytes", "resident_bytes",
                           "streamed_bytes_per_pass", "activation_bytes", "workspace_bytes", "predicted_s"});
  check_known(run.measured(), {"context_bytes", "kept_bytes", "peak_bytes", "reserved_peak_bytes",
                               "h2d_bytes", "h2d_copies", "d2h_bytes", "weight_bytes", "host_peak_bytes",
                               "device_allocs_steady", "wall_s", "modelled_s", "stall_s"});
  CHECK(run.measured().at("output_sha256").get<std::string>().size() == 64);
  CHECK(run.report.at("plans").size() == 2);
  CHECK(run.report.at("models").size() == 1);
  CHECK(run.report.at("models")[0].at("runs") == 2);
  CHECK(run.jobs().size() == 2);
  double modelled = 0;
  for (const auto& job : run.jobs()) {
    check_known(job, kJobNumbers);
    CHECK(job.at("error").is_null());
    modelled += job.at("modelled_s").get<double>();
  }
  CHECK(modelled > 0);
  CHECK(run.measured().at("modelled_s").get<double>() >= modelled * 0.999);
}

TEST_CASE("a run on the cpu leaves null what only a device has") {
  const Workplace place;
  const Archive archive = model("ocr_cls");
  const Reported run = place.run(archive.path, archive.inputs, {"--device", "cpu"});
  REQUIRE(run.outcome.code == 0);
  check_form(run.report);
  CHECK(run.report.at("device").at("kind") == "cpu");
  CHECK(run.report.at("cap_bytes").is_null());
  CHECK(run.measured().at("peak_bytes").is_null());
  CHECK(run.measured().at("modelled_s").is_null());
  CHECK(run.measured().at("h2d_bytes") == 0);
  CHECK(run.jobs()[0].at("wall_s").is_number());
  CHECK(run.jobs()[0].at("used_after_bytes").is_null());
}

TEST_CASE("plan, measure and a refused run write reports of the same form") {
  const Workplace place;
  const Archive archive = model("ocr_cls");
  const Reported plan = place.plan(archive.path, {"--device", "sim"});
  CHECK(plan.outcome.code == 0);
  check_form(plan.report);
  CHECK(plan.jobs().empty());

  const Reported measure = place.reported(
      {"measure", archive.path.string(), archive.inputs[0].string(), "--runs", "3", "--device", "sim"});
  CHECK(measure.outcome.code == 0);
  check_form(measure.report);
  CHECK(measure.jobs().size() == 3);

  const Reported refused = place.run(archive.path, archive.inputs, {"--device", "sim", "--vram-cap", "1KiB"});
  CHECK(refused.outcome.code == 3);
  check_form(refused.report);
  check_known(refused.plan(), {"min_cap_bytes"});
}

TEST_CASE("failed inputs stand in the report with their reason") {
  const Workplace place;
  const Archive archive = model("ocr_cls");
  write_text(place / "broken.safetensors", "broken");
  const Reported run =
      place.run(archive.path, {place / "broken.safetensors", archive.inputs[0]}, {"--device", "sim"});
  CHECK(run.outcome.code == 1);
  check_form(run.report);
  REQUIRE(run.jobs().size() == 2);
  CHECK(run.jobs()[0].at("status") == "failed");
  CHECK(run.jobs()[0].at("error").get<std::string>().find("broken.safetensors") != std::string::npos);
  CHECK(run.jobs()[1].at("status") == "ok");
  CHECK(run.report.at("models")[0].at("runs") == 1);
}
