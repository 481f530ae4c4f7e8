// --low-vram: its line, its three numbers, its cap, and a device left as it was found.
#include <doctest/doctest.h>

#include <algorithm>

#include "e2e/e2e_support.hpp"
#include "lowtide/bytes.hpp"

using namespace lowtide;
using namespace lowtide::test;

namespace {

const char* const kLine = "[Memory] CPU-first mode: ALL models on CPU, moved to the device layer by layer";
constexpr double kSlowdown = 1.2;
constexpr double kShare = 0.4;

bool has_line(const std::string& text, const std::string& wanted) {
  const auto all = lines(text);
  return std::find(all.begin(), all.end(), wanted) != all.end();
}

/// The default card with other rates.
std::string card_with(const Workplace& place, const std::string& name, const nlohmann::json& changes) {
  nlohmann::json card{{"name", name}, {"total_bytes", 8'589'934'592ULL}};
  card.update(changes);
  write_text(place / (name + ".json"), card.dump());
  return "sim:" + (place / (name + ".json")).string();
}

/// What the rule works with, from plans that did not use it.
struct Choice {
  std::uint64_t chosen = 0, smallest = 0, share = 0;
};

Choice choice_for(const Workplace& place, const Archive& archive, const std::string& device) {
  const Reported resident = place.plan(archive.path, {"--device", device});
  const Reported low = place.plan(archive.path, {"--device", device, "--low-vram"});
  INFO(low.outcome.err);
  REQUIRE(low.outcome.code == 0);
  CHECK(low.report.at("low_vram") == true);
  const std::uint64_t context = resident.plan().at("context_bytes");
  const std::uint64_t peak = resident.plan().at("peak_bytes");
  return {.chosen = low.report.at("cap_bytes"),
          .smallest = resident.plan().at("min_cap_bytes"),
          .share = context + static_cast<std::uint64_t>(kShare * static_cast<double>(peak - context))};
}

double predicted(const Workplace& place, const Archive& archive, const std::string& device,
                 std::uint64_t cap) {
  const Reported plan = place.plan(
      archive.path, {"--device", device, "--vram-cap", std::to_string(cap), "--after-job", "release"});
  INFO(plan.outcome.err);
  REQUIRE(plan.outcome.code == 0);
  return plan.plan().at("predicted_s");
}

}  // namespace

TEST_CASE("low-vram says so on stderr, also when quiet, and gives everything back after each job") {
  const Workplace place;
  const Archive archive = model("blocks_12x64");
  for (const bool quiet : {false, true}) {
    CAPTURE(quiet);
    Arguments options{"--device", card_with(place, "crowded", {{"context_bytes", 50'000'000}}), "--low-vram"};
    if (quiet) options.push_back("--quiet");
    const Reported run = place.run(archive.path, archive.inputs, options);
    INFO(run.outcome.err);
    REQUIRE(run.outcome.code == 0);
    CHECK(lines(run.outcome.err).front() == kLine);
    CHECK(run.report.at("low_vram") == true);
    CHECK(run.plan().at("kept_bytes") == 0);
    CHECK(run.measured().at("kept_bytes") == 0);
    CHECK(run.measured().at("context_bytes") == 50'000'000);
    CHECK(run.measured().at("peak_bytes") <= run.report.at("cap_bytes"));
    CHECK(run.jobs().size() == archive.inputs.size());
    check_baseline(run);
  }
  const Reported plain = place.run(archive.path, archive.inputs, {"--device", "sim"});
  CHECK_FALSE(has_line(plain.outcome.err, kLine));
  CHECK(plain.report.at("low_vram") == false);
}

TEST_CASE("the three numbers and the chosen cap are printed") {
  const Workplace place;
  const Archive archive = model("blocks_12x64");
  const Reported run =
      place.run(archive.path, {archive.inputs[0]}, {"--device", "sim", "--low-vram", "--quiet"});
  REQUIRE(run.outcome.code == 0);
  const Choice choice = choice_for(place, archive, "sim");
  const std::string numbers = lines(run.outcome.err).at(1);
  CAPTURE(numbers);
  CHECK(numbers.find("cap " + format_bytes(run.report.at("cap_bytes").get<Bytes>()) + " chosen") !=
        std::string::npos);
  CHECK(numbers.find("20 % of resident time from ") != std::string::npos);
  CHECK(numbers.find("40 % of the resident peak is " + format_bytes(choice.share)) != std::string::npos);
  CHECK(numbers.find("smallest that works is " + format_bytes(choice.smallest)) != std::string::npos);
}

TEST_CASE("where copies take longest, the cap is 40 % of the resident peak above the context") {
  const Workplace place;
  const Archive archive = model("resnet50");
  const std::string slow_link =
      card_with(place, "slow_link", {{"link_pinned_bytes_per_s", 1e9}, {"context_bytes", 77}});
  const Choice choice = choice_for(place, archive, slow_link);
  REQUIRE(choice.share > choice.smallest);  // or this says nothing
  CHECK(choice.chosen >= choice.share - 1);
  CHECK(choice.chosen <= choice.share + 1);
}

TEST_CASE("where 40 % of the peak cannot work, the cap is the smallest that does") {
  const Workplace place;
  const Archive archive = model("qwen3_static");
  const Choice choice = choice_for(place, archive, "sim");
  REQUIRE(choice.share < choice.smallest);
  CHECK(choice.chosen == choice.smallest);
}

TEST_CASE("where copies hide behind the work, the cap is the smallest within 20 % of resident time") {
  const Workplace place;
  const Archive archive = model("resnet50");
  // Slow enough that only the smallest caps cost time.
  const std::string slow_card = card_with(place, "slow_card", {{"fp32_flops", 1.5e12}});
  const Choice choice = choice_for(place, archive, slow_card);
  const Reported resident = place.plan(archive.path, {"--device", slow_card});
  const double limit = kSlowdown * resident.plan().at("predicted_s").get<double>();
  CAPTURE(choice.smallest);
  CAPTURE(choice.share);
  CAPTURE(choice.chosen);
  REQUIRE(choice.chosen < choice.share);
  CHECK(choice.chosen >= choice.smallest);
  CHECK(predicted(place, archive, slow_card, choice.chosen) <= limit);
  const std::uint64_t lower = choice.chosen - choice.chosen / 20;
  if (lower >= choice.smallest) CHECK(predicted(place, archive, slow_card, lower) > limit);
}

TEST_CASE("a cap of one's own overrides the choice and keeps the mode") {
  const Workplace place;
  const Archive archive = model("blocks_12x64");
  const Reported run =
      place.run(archive.path, archive.inputs, {"--device", "sim", "--low-vram", "--vram-cap", "16MiB"});
  REQUIRE(run.outcome.code == 0);
  CHECK(has_line(run.outcome.err, kLine));
  CHECK(run.report.at("cap_bytes") == 16U << 20);
  CHECK(run.measured().at("kept_bytes") == 0);
  check_baseline(run);
}
