// Waves: jobs that share each copy of the weights. Same bits, same accounting, fewer bytes.
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "e2e/e2e_support.hpp"

using namespace lowtide;
using namespace lowtide::test;
namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::int64_t kWords = 1000;  // that blocks_12x64 knows

/// Token ids for blocks_12x64.
fs::path tokens(const Workplace& place, const std::string& name, std::int64_t batch, std::int64_t length) {
  return place.input(name + ".safetensors", {{"ids", at::randint(kWords, {batch, length}, at::kLong)}});
}

/// Seven inputs, no two of one shape.
std::vector<fs::path> seven_inputs(const Workplace& place) {
  std::vector<fs::path> inputs;
  for (int i = 0; i < 7; ++i)
    inputs.push_back(tokens(place, "tokens" + std::to_string(i), 1 + i % 3, 5 + 9 * i));
  return inputs;
}

std::uint64_t smallest_cap(const Workplace& place, const fs::path& archive,
                           const std::vector<fs::path>& inputs, const Arguments& options) {
  Arguments all{"--device", "sim", "--vram-cap", "1"};
  all.insert(all.end(), options.begin(), options.end());
  const Reported refused = place.run(archive, inputs, all);
  INFO(refused.outcome.err);
  REQUIRE(refused.outcome.code == 3);
  return refused.plan().at("min_cap_bytes");
}

Reported run_waves(const Workplace& place, const std::vector<fs::path>& inputs, std::uint64_t cap,
                   const std::string& wave, const char* after_job = "keep") {
  fs::remove_all(place.out());
  return place.run(
      model("blocks_12x64").path, inputs,
      {"--device", "sim", "--vram-cap", std::to_string(cap), "--after-job", after_job, "--wave", wave});
}

std::uint64_t copied(const Reported& run) {
  return std::accumulate(run.jobs().begin(), run.jobs().end(), std::uint64_t{0},
                         [](std::uint64_t sum, const auto& job) {
                           return sum + job.at("h2d_bytes").template get<std::uint64_t>();
                         });
}

}  // namespace

TEST_CASE("results do not depend on the wave, and every job leaves the context and what is kept") {
  const Workplace place;
  const Archive archive = model("blocks_12x64");
  const std::vector<fs::path> inputs = seven_inputs(place);
  const Reported on_cpu = place.run(archive.path, inputs, {"--device", "cpu"});
  REQUIRE(on_cpu.outcome.code == 0);
  const std::uint64_t smallest = smallest_cap(place, archive.path, inputs, {});
  int largest_wave = 0;
  for (const std::uint64_t cap : {smallest + kMiB / 4, smallest + 2 * kMiB, 64 * kMiB}) {
    for (const char* after_job : {"keep", "release"}) {
      for (const std::string wave : {"1", "2", "3", "7", "auto"}) {
        CAPTURE(cap);
        CAPTURE(after_job);
        CAPTURE(wave);
        const Reported run = run_waves(place, inputs, cap, wave, after_job);
        INFO(run.outcome.err);
        REQUIRE(run.outcome.code == 0);
        CHECK(run.measured().at("output_sha256") == on_cpu.measured().at("output_sha256"));
        CHECK(run.measured().at("peak_bytes") <= run.plan().at("peak_bytes"));
        CHECK(run.plan().at("peak_bytes") <= cap);
        REQUIRE(run.jobs().size() == inputs.size());
        check_baseline(run);
        for (std::size_t i = 0; i < inputs.size(); ++i) {
          CHECK(run.jobs()[i].at("id") == inputs[i].filename().string());
          CHECK(fs::exists(place.out() / inputs[i].filename()));
        }
        const int planned = run.plan().at("wave");
        if (wave != "auto") CHECK(planned <= std::stoi(wave));
        largest_wave = std::max(largest_wave, planned);
      }
    }
  }
  CHECK(largest_wave == 7);  // or this says less than it seems to
}

TEST_CASE("a wave copies the weights once for all its jobs, and each of them bears its share") {
  const Workplace place;
  const std::vector<fs::path> inputs = seven_inputs(place);
  const std::uint64_t cap = smallest_cap(place, model("blocks_12x64").path, inputs, {}) + 2 * kMiB;
  const Reported alone = run_waves(place, inputs, cap, "1", "release");
  const Reported together = run_waves(place, inputs, cap, "7", "release");
  REQUIRE(alone.outcome.code == 0);
  REQUIRE(together.outcome.code == 0);
  REQUIRE(together.plan().at("wave") == 7);
  CHECK(copied(together) < copied(alone) / 3);
  CHECK(together.measured().at("modelled_s").get<double>() < alone.measured().at("modelled_s").get<double>());
  double modelled = 0;
  for (const auto& job : together.jobs()) {
    CHECK(job.at("modelled_s") == together.jobs()[0].at("modelled_s"));
    modelled += job.at("modelled_s").get<double>();
  }
  CHECK(together.measured().at("modelled_s").get<double>() >= modelled * 0.999);
  CHECK(copied(together) <= together.measured().at("h2d_bytes").get<std::uint64_t>());
  CHECK(copied(together) + inputs.size() >= together.measured().at("h2d_bytes").get<std::uint64_t>());
}

TEST_CASE("seven jobs in waves of at most three go as three, two and two") {
  const Workplace place;
  const std::vector<fs::path> inputs = seven_inputs(place);
  const std::uint64_t cap = smallest_cap(place, model("blocks_12x64").path, inputs, {}) + 2 * kMiB;
  const Reported run = run_waves(place, inputs, cap, "3", "release");
  REQUIRE(run.outcome.code == 0);
  REQUIRE(run.plan().at("wave") == 3);
  std::vector<double> times;  // the jobs of a wave have equal ones
  for (const auto& job : run.jobs()) times.push_back(job.at("modelled_s"));
  CHECK(times[0] == times[2]);
  CHECK(times[2] != times[3]);
  CHECK(times[3] == times[4]);
  CHECK(times[4] != times[5]);
  CHECK(times[5] == times[6]);
}

TEST_CASE("a bad input in the middle of a wave fails alone") {
  const Workplace place;
  std::vector<fs::path> inputs = seven_inputs(place);
  const std::uint64_t cap = smallest_cap(place, model("blocks_12x64").path, inputs, {}) + 2 * kMiB;
  const Reported good = run_waves(place, inputs, cap, "7");
  REQUIRE(good.outcome.code == 0);
  std::vector<std::string> wanted;
  for (const fs::path& input : inputs) wanted.push_back(read_text(place.out() / input.filename()));

  const auto replaced = [&](const std::string& name, const at::Tensor& ids) {
    return place.input("bad.safetensors", {{name, ids}});
  };
  struct Bad {
    const char* what;
    at::Tensor ids;
    std::string name, reason;
  };
  const at::Tensor right = at::randint(kWords, {2, 8}, at::kLong);
  for (const Bad& bad : {Bad{"a name that the model does not know", right, "words", "words"},
                         Bad{"a wrong dtype", right.to(at::kFloat), "ids", "f32"},
                         Bad{"a token beyond the table", at::full({2, 8}, kWords, at::kLong), "ids", ""}}) {
    CAPTURE(bad.what);
    inputs[3] = replaced(bad.name, bad.ids);
    for (const std::string wave : {"7", "2"}) {
      CAPTURE(wave);
      const Reported run = run_waves(place, inputs, cap, wave);
      INFO(run.outcome.err);
      CHECK(run.outcome.code == 1);
      REQUIRE(run.jobs().size() == inputs.size());
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        CAPTURE(i);
        const auto& job = run.jobs()[i];
        CHECK(job.at("id") == inputs[i].filename().string());
        if (i == 3) {
          CHECK(job.at("status") == "failed");
          CHECK(job.at("error").get<std::string>().find(bad.reason) != std::string::npos);
          CHECK_FALSE(fs::exists(place.out() / "bad.safetensors"));
          continue;
        }
        CHECK(job.at("status") == "ok");
        const bool same = read_text(place.out() / inputs[i].filename()) == wanted[i];
        CHECK(same);
        CHECK(job.at("used_after_bytes").get<std::uint64_t>() ==
              run.measured().at("context_bytes").get<std::uint64_t>() +
                  run.measured().at("kept_bytes").get<std::uint64_t>());
      }
    }
  }
}

TEST_CASE("with waves, too, the smallest cap works and one byte less is refused") {
  const Workplace place;
  const Archive archive = model("blocks_12x64");
  const std::vector<fs::path> inputs = seven_inputs(place);
  for (const std::string wave : {"3", "auto"}) {
    CAPTURE(wave);
    const std::uint64_t smallest = smallest_cap(place, archive.path, inputs, {"--wave", wave});
    const Reported run = run_waves(place, inputs, smallest, wave);
    INFO(run.outcome.err);
    CHECK(run.outcome.code == 0);
    CHECK(run.measured().at("peak_bytes") <= smallest);
    check_refused(run_waves(place, inputs, smallest - 1, wave).outcome, 3, {std::to_string(smallest)});
  }
}

TEST_CASE("where weights are streamed, the planner finds a wave that pays") {
  const Workplace place;
  const fs::path archive = model("mixed_12").path;
  const Reported alone = place.plan(archive, {"--device", "sim", "--vram-cap", "6MiB"});
  const Reported together = place.plan(archive, {"--device", "sim", "--vram-cap", "6MiB", "--wave", "auto"});
  INFO(together.outcome.err);
  REQUIRE(alone.outcome.code == 0);
  REQUIRE(together.outcome.code == 0);
  CHECK(alone.plan().at("wave") == 1);
  const int wave = together.plan().at("wave");
  CHECK(wave > 1);
  CHECK(together.outcome.out.find(std::to_string(wave) + " jobs pass") != std::string::npos);
  CHECK(together.plan().at("predicted_s").get<double>() < alone.plan().at("predicted_s").get<double>() * 0.9);
  CHECK(together.plan().at("peak_bytes") <= 6 * kMiB);
}

TEST_CASE("jobs of a model with state run one at a time, and asking for a wave of them is wrong usage") {
  const Workplace place;
  const Archive archive = model("qwen3_static");
  const auto run = [&](const std::string& wave) {
    return place.run(archive.path, archive.inputs,
                     {"--device", "sim", "--vram-cap", "100MiB", "--wave", wave});
  };
  const Reported alone = run("1"), as_planned = run("auto");
  INFO(as_planned.outcome.err);
  REQUIRE(alone.outcome.code == 0);
  REQUIRE(as_planned.outcome.code == 0);
  CHECK(as_planned.plan().at("wave") == 1);
  CHECK(as_planned.measured().at("output_sha256") == alone.measured().at("output_sha256"));
  check_refused(run("4").outcome, 2, {"wave of 4 has no effect", "qwen3_static", "leave --wave out"});
}

TEST_CASE("a job list of two models runs neighbours of one model together, with the same results") {
  const Workplace place;
  const Archive first = model("blocks_12x64"), second = model("ocr_cls");
  const std::vector<fs::path> inputs = seven_inputs(place);
  std::string list;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool other = i == 3;
    list += nlohmann::json{{"id", std::to_string(i)},
                           {"model", (other ? second : first).path.string()},
                           {"inputs", (other ? second.inputs[0] : inputs[i]).string()},
                           {"output", std::to_string(i) + ".safetensors"}}
                .dump() +
            "\n";
  }
  write_text(place / "jobs.jsonl", list);
  std::vector<std::string> hashes;
  for (const char* wave : {"1", "2", "auto"}) {
    CAPTURE(wave);
    const Reported run =
        place.reported({"run", "--jobs", (place / "jobs.jsonl").string(), "--out", place.out().string(),
                        "--device", "sim", "--after-job", "release", "--wave", wave});
    INFO(run.outcome.err);
    REQUIRE(run.outcome.code == 0);
    CHECK(run.jobs().size() == inputs.size());
    check_baseline(run);
    hashes.push_back(run.measured().at("output_sha256"));
  }
  for (const std::string& hash : hashes) CHECK(hash == hashes.front());
}
