// Buckets as a user meets them: few shapes, results as if there were none, one line where they make no sense.
#include <ATen/ops/allclose.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <doctest/doctest.h>

#include <set>

#include "e2e/e2e_support.hpp"

using namespace lowtide;
using namespace lowtide::test;
namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kWords = 1000;  // that blocks_12x64 knows
constexpr const char* kBuckets = "ids.0=1,4,8";

std::vector<fs::path> batches(const Workplace& place, const std::vector<std::int64_t>& rows) {
  std::vector<fs::path> inputs;
  for (std::size_t i = 0; i < rows.size(); ++i)
    inputs.push_back(place.input("b" + std::to_string(i) + ".safetensors",
                                 {{"ids", at::randint(kWords, {rows[i], 6}, at::kLong)}}));
  return inputs;
}

/// Whether two results of one job have equal names, shapes and dtypes, and close values.
bool close_results(const fs::path& a, const fs::path& b) {
  constexpr double kTolerance = 1e-5;
  const auto left = tensor_file::read_tensors(a), right = tensor_file::read_tensors(b);
  if (left.empty() || left.size() != right.size()) return false;
  for (std::size_t i = 0; i < left.size(); ++i) {
    const at::Tensor &x = left[i].tensor, &y = right[i].tensor;
    if (left[i].name != right[i].name || x.sizes() != y.sizes() || x.scalar_type() != y.scalar_type())
      return false;
    if (!at::allclose(x, y, kTolerance, kTolerance)) return false;
  }
  return true;
}

}  // namespace

TEST_CASE(
    "six sizes run as three shapes on cpu and card, alone and in waves, with the results of the jobs alone") {
  const Workplace place;
  const Archive archive = model("blocks_12x64");
  const auto inputs = batches(place, {3, 1, 7, 8, 2, 5});
  REQUIRE(place.run(archive.path, inputs, {"--device", "cpu"}).outcome.code == 0);
  const fs::path alone = place / "alone";
  fs::rename(place.out(), alone);
  std::string bits;
  for (const Arguments& options : {Arguments{"--device", "cpu"}, Arguments{"--device", "sim"},
                                   Arguments{"--device", "sim", "--vram-cap", "4MiB", "--wave", "3"}}) {
    CAPTURE(options);
    Arguments all = options;
    all.insert(all.end(), {"--shape-buckets", kBuckets});
    fs::remove_all(place.out());
    const Reported run = place.run(archive.path, inputs, all);
    INFO(run.outcome.err);
    REQUIRE(run.outcome.code == 0);
    REQUIRE(run.jobs().size() == inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      CHECK(run.jobs()[i].at("id") == inputs[i].filename().string());
      CHECK(close_results(place.out() / inputs[i].filename(), alone / inputs[i].filename()));
    }
    std::set<std::string> shapes;
    for (const auto& plan : run.report.at("plans")) {
      shapes.insert(plan.at("shapes"));
      CHECK_FALSE(plan.at("exact").get<bool>());
    }
    CHECK(shapes == std::set<std::string>{"ids i64[1, 6]", "ids i64[4, 6]", "ids i64[8, 6]"});
    if (bits.empty()) bits = run.measured().at("output_sha256");
    CHECK(run.measured().at("output_sha256") == bits);
    if (options.size() > 2) check_baseline(run);
  }
}

TEST_CASE("only the buckets that occur are planned by run, all of them by plan") {
  const Workplace place;
  const Archive archive = model("blocks_12x64");
  const Reported run =
      place.run(archive.path, batches(place, {3, 4}), {"--device", "sim", "--shape-buckets", kBuckets});
  CHECK(run.report.at("plans").size() == 1);
  const Reported plan =
      place.plan(archive.path, {"--device", "sim", "--shape", "ids=2x6", "--shape-buckets", kBuckets});
  REQUIRE(plan.outcome.code == 0);
  CHECK(plan.report.at("plans").size() == 3);
  CHECK(plan.plan().at("shapes") == "ids i64[8, 6]");
  CHECK(plan.outcome.out.find("padded to this shape") != std::string::npos);
  CHECK(plan.outcome.out.find("ids i64[4, 6]: peak") != std::string::npos);
  check_refused(
      place.lowtide({"plan", archive.path.string(), "--shape", "ids=9x6", "--shape-buckets", kBuckets}), 2,
      {"--shape", "largest bucket, 8"});
}

TEST_CASE("a job beyond the largest bucket fails alone and says what to do") {
  const Workplace place;
  const Archive archive = model("blocks_12x64");
  for (const char* device : {"cpu", "sim"}) {
    const Reported run =
        place.run(archive.path, batches(place, {3, 9, 1}), {"--device", device, "--shape-buckets", kBuckets});
    CHECK(run.outcome.code == 1);
    CHECK(run.jobs()[0].at("status") == "ok");
    CHECK(run.jobs()[2].at("status") == "ok");
    const std::string error = run.jobs()[1].at("error");
    CHECK(error.find("largest bucket, 8") != std::string::npos);
    CHECK(error.find("add a larger one") != std::string::npos);
  }
}

TEST_CASE("a dimension that is no batch is refused with the node, unless the user says what to pad with") {
  const Workplace place;
  const Archive archive = model("minilm_l6");
  const fs::path input = place.input("a.safetensors", {{"ids", at::randint(kWords, {2, 5}, at::kLong)},
                                                       {"mask", at::ones({2, 5}, at::kLong)}});
  const auto run = [&](const std::string& buckets) {
    return place.lowtide({"run", archive.path.string(), input.string(), "--out", place.out().string(),
                          "--device", "cpu", "--shape-buckets", buckets});
  };
  check_refused(run("ids.1=8,16"), 2,
                {"ids.1", "no batch", "aten::__and__", "modeling_bert.py", "pad=VALUE"});
  check_refused(run("words.0=8"), 2, {"no input 'words'", "ids, mask"});
  check_refused(run("ids.0=1152921504606846976"), 2, {"between 1 and"});
  CHECK_FALSE(fs::exists(place.out()));
  REQUIRE(place
              .lowtide({"run", archive.path.string(), input.string(), "--out", (place / "alone").string(),
                        "--device", "cpu"})
              .code == 0);
  REQUIRE(run("ids.1=8,16:pad=0").code == 0);
  CHECK(close_results(place.out() / "a.safetensors", place / "alone" / "a.safetensors"));
}

TEST_CASE("in a job list buckets are for the models that have the input, and for one at least") {
  const Workplace place;
  const fs::path ids = batches(place, {3})[0];
  const auto line = [](const char* name, const fs::path& input) {
    return nlohmann::json{{"id", name},
                          {"model", model(name).path.string()},
                          {"inputs", input.string()},
                          {"output", std::string(name) + ".safetensors"}}
               .dump() +
           "\n";
  };
  const std::string jobs = line("blocks_12x64", ids) + line("ocr_cls", model("ocr_cls").inputs[0]);
  write_text(place / "jobs.jsonl", jobs);
  const auto arguments = [&](const std::string& list, const std::string& buckets) {
    return Arguments{"run", "--jobs",          list,   "--out", place.out().string(), "--device",
                     "cpu", "--shape-buckets", buckets};
  };
  const Reported run = place.reported(arguments((place / "jobs.jsonl").string(), kBuckets));
  INFO(run.outcome.err);
  REQUIRE(run.outcome.code == 0);
  CHECK(run.plan().at("exact").is_boolean());
  std::set<std::string> padded;
  for (const auto& plan : run.report.at("plans"))
    if (!plan.at("exact").get<bool>()) padded.insert(plan.at("model"));
  CHECK(padded == std::set<std::string>{"blocks_12x64"});
  check_refused(place.lowtide(arguments((place / "jobs.jsonl").string(), "words.0=1")), 2,
                {"words.0", "no effect"});
  // What comes on standard input is not known: a model without the input is an error of its line.
  const Reported stream = place.reported(arguments("-", kBuckets), jobs);
  CHECK(stream.outcome.code == 1);
  CHECK(stream.jobs()[0].at("status") == "ok");
  CHECK(stream.jobs()[1].at("error").get<std::string>().find("no input 'ids'") != std::string::npos);
}
