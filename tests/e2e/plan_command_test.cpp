// `lowtide plan`: what it prints, what it draws, and what it says about weights that are too large.
#include <doctest/doctest.h>

#include "apps/xml_check.hpp"
#include "e2e/e2e_support.hpp"

using namespace lowtide;
using namespace lowtide::test;
namespace fs = std::filesystem;

namespace {

bool says(const Reported& plan, const std::string& part) {
  return plan.outcome.out.find(part) != std::string::npos;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("a plan prints its proof, its weights, its time and its curve in less than a screen or two") {
  const Workplace place;
  const fs::path archive = model("resnet50").path;
  const Reported plan = place.plan(archive, {"--device", "sim", "--vram-cap", "60MiB"});
  INFO(plan.outcome.out);
  REQUIRE(plan.outcome.code == 0);
  CHECK(plan.outcome.err == "");
  for (const char* part :
       {"resnet50: ", "on the simulated card 'default'", "weight slab", "= peak", "proved", "smallest cap",
        "\nweights\n", "resident", "streamed", "compute waits for copies", "time over cap", "<- this cap"})
    CHECK(says(plan, part));
  CHECK(says(plan, std::to_string(plan.plan().at("peak_bytes").get<std::uint64_t>())));
  CHECK(says(plan, std::to_string(plan.plan().at("min_cap_bytes").get<std::uint64_t>())));
  CHECK(lines(plan.outcome.out).size() < 60);
  const Reported verbose = place.plan(archive, {"--device", "sim", "--vram-cap", "60MiB", "--verbose"});
  CHECK(lines(verbose.outcome.out).size() > lines(plan.outcome.out).size());
  CHECK(place.plan(archive, {"--device", "sim", "--quiet"}).outcome.out == "");
  CHECK(place.plan(archive, {"--device", "cpu"}).outcome.code == 0);
}

TEST_CASE("the curve is drawn into a file, also when quiet, with the points of the table") {
  const Workplace place;
  const fs::path archive = place / "a & b <c>.pt2";
  fs::copy_file(model("blocks_12x64").path, archive);
  const fs::path file = place / "curve.svg";
  const Reported plan = place.plan(archive, {"--device", "sim", "--svg", file.string()});
  REQUIRE(plan.outcome.code == 0);
  const std::string svg = read_text(file);
  CHECK(xml_problem(svg) == "");
  CHECK(svg.find("a &amp; b &lt;c&gt;") != std::string::npos);
  const std::string table = plan.outcome.out.substr(plan.outcome.out.find("time over cap"));
  CHECK(count(svg, "class=\"point\"") == lines(table).size() - 2);  // without its heads
  CHECK(count(svg, "class=\"cap\"") == 1);

  const Reported quiet =
      place.plan(archive, {"--device", "sim", "--quiet", "--svg", (place / "quiet.svg").string()});
  CHECK(quiet.outcome.code == 0);
  CHECK(quiet.outcome.out == "");
  CHECK(read_text(place / "quiet.svg") == svg);
}

TEST_CASE("a picture that cannot be written is wrong usage before anything is planned, none is left behind") {
  const Workplace place;
  const fs::path archive = model("blocks_12x64").path;
  const std::string missing = (place / "none" / "curve.svg").string();
  check_refused(place.lowtide({"plan", archive.string(), "--device", "sim", "--svg", missing}), 2,
                {"picture", missing});
  check_refused(place.lowtide({"plan", "none.pt2", "--device", "sim", "--svg", missing}), 2, {"picture"});
  const fs::path file = place / "curve.svg";
  const Outcome refused = place.lowtide(
      {"plan", archive.string(), "--device", "sim", "--vram-cap", "1KiB", "--svg", file.string()});
  check_refused(refused, 3, {"smallest"});
  CHECK_FALSE(fs::exists(file));
}

TEST_CASE("--low-vram says so once, with plan and measure too, also when quiet") {
  const Workplace place;
  const std::string archive = model("blocks_12x64").path.string();
  const std::string line = "[Memory] CPU-first mode: ALL models on CPU, moved to the device layer by layer\n";
  for (const bool quiet : {false, true}) {
    CAPTURE(quiet);
    Arguments plan{"plan", archive, "--device", "sim", "--low-vram"};
    Arguments measure{"measure", archive, "--runs", "1", "--device", "sim", "--low-vram"};
    for (Arguments arguments : {plan, measure}) {
      CAPTURE(arguments.front());
      if (quiet) arguments.push_back("--quiet");
      const Outcome outcome = place.lowtide(arguments);
      CHECK(outcome.code == 0);
      CHECK(outcome.err.starts_with(line));
      CHECK(count(outcome.err, line) == 1);
    }
    plan.pop_back();
    CHECK(place.lowtide(plan).err == "");
  }
}

TEST_CASE("weights that may be split lower the smallest cap, which plan, refusal and report name alike") {
  const Workplace place;
  const Archive archive = model("giant_linear");
  const Reported plan = place.plan(archive.path, {"--device", "sim"});
  REQUIRE(plan.outcome.code == 0);
  CHECK(plan.plan().at("exact") == true);
  REQUIRE(plan.plan().at("min_cap_split_bytes").is_number());
  const std::uint64_t smallest = plan.plan().at("min_cap_bytes"),
                      split = plan.plan().at("min_cap_split_bytes");
  CHECK(split < smallest);
  CHECK(says(plan, "smallest with --allow-split"));
  CHECK(says(plan, std::to_string(split)));

  const Reported refused = place.plan(archive.path, {"--device", "sim", "--vram-cap", "1MiB"});
  CHECK(refused.outcome.code == 3);
  CHECK(refused.plan().at("min_cap_bytes") == smallest);
  CHECK(refused.plan().at("min_cap_split_bytes") == split);
}

TEST_CASE("a run at the smallest cap for split weights works, says that it is not exact, and comes close") {
  const Workplace place;
  const Archive archive = model("blocks_12x64");
  const std::vector<fs::path> inputs{archive.inputs.front()};
  const Reported refused = place.run(archive.path, inputs, {"--device", "sim", "--vram-cap", "1"});
  REQUIRE(refused.outcome.code == 3);
  if (refused.plan().at("min_cap_split_bytes").is_null()) return;  // small weights: nothing is gained
  const std::uint64_t split = refused.plan().at("min_cap_split_bytes");
  const Reported run = place.run(archive.path, inputs,
                                 {"--device", "sim", "--vram-cap", std::to_string(split), "--allow-split"});
  INFO(run.outcome.err);
  REQUIRE(run.outcome.code == 0);
  CHECK(run.plan().at("exact") == false);
  CHECK(run.measured().at("peak_bytes") <= split);
  CHECK(difference(place.out() / inputs[0].filename(), archive.outputs.front(), 1e-4) == "");
  check_refused(place
                    .run(archive.path, inputs,
                         {"--device", "sim", "--vram-cap", std::to_string(split - 1), "--allow-split"})
                    .outcome,
                3, {std::to_string(split)});
}
