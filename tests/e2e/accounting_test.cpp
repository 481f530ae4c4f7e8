// What a batch copies, keeps and leaves behind, to the byte.
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <doctest/doctest.h>

#include "e2e/e2e_support.hpp"

using namespace lowtide;
using namespace lowtide::test;
namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

/// Token ids for blocks_12x64.
fs::path tokens(const Workplace& place, int index, std::int64_t batch, std::int64_t length) {
  return place.input("tokens" + std::to_string(index) + ".safetensors",
                     {{"ids", at::randint(1000, {batch, length}, at::kLong)}});
}

/// Fifty inputs of twelve shapes, large and small mixed.
std::vector<fs::path> fifty_inputs(const Workplace& place) {
  std::vector<fs::path> inputs;
  for (int i = 0; i < 50; ++i) inputs.push_back(tokens(place, i, 1 + i * 7 % 4, 8 + i * 5 % 3 * 12));
  return inputs;
}

std::uint64_t smallest_cap(const Workplace& place, const fs::path& archive,
                           const std::vector<fs::path>& inputs) {
  return place.run(archive, inputs, {"--device", "sim", "--vram-cap", "1"}).plan().at("min_cap_bytes");
}

/// Bytes that a job with this input copies beside weights and input.
using RowsOf = std::uint64_t (*)(const fs::path& input);

std::uint64_t no_rows(const fs::path&) {
  return 0;
}

/// What the host looks up for minilm_l6: a row of the word table per token, one of the position table per
/// place.
std::uint64_t minilm_rows(const fs::path& input) {
  constexpr std::int64_t kRow = 384 * sizeof(float);
  const at::Tensor ids = tensor_file::read_tensors(input).front().tensor;
  return static_cast<std::uint64_t>((ids.numel() + ids.size(1)) * kRow);
}

/// Bytes that each job copies to the device: `per_pass`, its own input, and the rows that it looks up.
void check_copies(const Reported& run, const std::vector<fs::path>& inputs, std::size_t from,
                  std::uint64_t per_pass, RowsOf rows_of = no_rows) {
  REQUIRE(run.jobs().size() == inputs.size());
  for (std::size_t i = from; i < inputs.size(); ++i) {
    CAPTURE(i);
    CHECK(run.jobs()[i].at("h2d_bytes") ==
          per_pass + tensor_bytes(std::span(&inputs[i], 1)) + rows_of(inputs[i]));
  }
}

Reported run_ok(const Workplace& place, const fs::path& archive, const std::vector<fs::path>& inputs,
                const Arguments& options) {
  Reported run = place.run(archive, inputs, options);
  INFO(run.outcome.err);
  REQUIRE(run.outcome.code == 0);
  check_baseline(run);
  return run;
}

}  // namespace

TEST_CASE("with keep, jobs from the second on copy what the plan streams, their inputs and rows, exactly") {
  const Workplace place;
  const Archive archive = model("minilm_l6");
  const std::uint64_t smallest = smallest_cap(place, archive.path, archive.inputs);
  const Reported run = run_ok(place, archive.path, archive.inputs,
                              {"--device", "sim", "--vram-cap", std::to_string(smallest + 20 * kMiB)});
  const std::uint64_t streamed = run.plan().at("streamed_bytes_per_pass"),
                      resident = run.plan().at("resident_bytes");
  CHECK(streamed > 0);  // or this says nothing
  CHECK(resident > 0);
  CHECK(run.measured().at("kept_bytes") >= resident);
  check_copies(run, archive.inputs, 1, streamed, minilm_rows);
  CHECK(run.jobs()[0].at("h2d_bytes") > run.jobs()[1].at("h2d_bytes"));
}

TEST_CASE("with release, every job copies what the plan streams, its inputs and rows, exactly") {
  const Workplace place;
  const Archive archive = model("minilm_l6");
  const std::uint64_t smallest = smallest_cap(place, archive.path, archive.inputs);
  for (const std::uint64_t above : {std::uint64_t{0}, 20 * kMiB}) {
    CAPTURE(above);
    const Reported run =
        run_ok(place, archive.path, archive.inputs,
               {"--device", "sim", "--vram-cap", std::to_string(smallest + above), "--after-job", "release"});
    check_copies(run, archive.inputs, 0, run.plan().at("streamed_bytes_per_pass"), minilm_rows);
    CHECK(run.measured().at("kept_bytes") == 0);
  }
}

TEST_CASE("no job copies more than the weights and its inputs where no weight is used twice") {
  for (const char* name : {"blocks_12x64", "minilm_l6", "ocr_cls", "page_orientation"}) {
    const Archive archive = model(name);
    CAPTURE(archive.name);
    const Workplace place;
    const std::uint64_t smallest = smallest_cap(place, archive.path, archive.inputs);
    for (const char* after_job : {"keep", "release"}) {
      const Reported run =
          run_ok(place, archive.path, archive.inputs,
                 {"--device", "sim", "--vram-cap", std::to_string(smallest), "--after-job", after_job});
      const std::uint64_t weights = run.measured().at("weight_bytes");
      std::uint64_t total = 0;
      for (std::size_t i = 0; i < archive.inputs.size(); ++i) {
        const std::uint64_t copied = run.jobs()[i].at("h2d_bytes");
        CHECK(copied <= weights + tensor_bytes(std::span(&archive.inputs[i], 1)));
        total += copied;
      }
      CHECK(run.measured().at("h2d_bytes") == total);
    }
  }
}

TEST_CASE(
    "with room for everything and keep, weights move once and nothing is allocated in the steady state") {
  const Workplace place;
  const Archive archive = model("blocks_12x64");
  std::vector<fs::path> inputs;
  for (int i = 0; i < 8; ++i) inputs.push_back(tokens(place, i, 1 + i % 2, 16));
  const Reported run = run_ok(place, archive.path, inputs, {"--device", "sim", "--vram-cap", "1GiB"});
  CHECK(run.plan().at("streamed_bytes_per_pass") == 0);
  check_copies(run, inputs, 1, 0);
  CHECK(run.jobs()[0].at("h2d_bytes") ==
        run.plan().at("resident_bytes").get<std::uint64_t>() + tensor_bytes(std::span(inputs.data(), 1)));
  CHECK(run.measured().at("device_allocs_steady") == 0);
}

TEST_CASE("fifty jobs of mixed shapes leave the context and what is kept, after every job") {
  const Workplace place;
  const Archive archive = model("blocks_12x64");
  const std::vector<fs::path> inputs = fifty_inputs(place);
  const std::uint64_t smallest = smallest_cap(place, archive.path, inputs);
  std::vector<std::string> hashes;
  for (const auto& [cap, after_job] :
       {std::pair{smallest, "release"}, {smallest + kMiB / 4, "keep"}, {64 * kMiB, "keep"}}) {
    CAPTURE(cap);
    const Reported run =
        run_ok(place, archive.path, inputs,
               {"--device", "sim", "--vram-cap", std::to_string(cap), "--after-job", after_job});
    CHECK(run.jobs().size() == 50);
    CHECK((run.measured().at("kept_bytes") > 0) == (after_job == std::string("keep")));
    CHECK(run.measured().at("peak_bytes") <= cap);
    hashes.push_back(run.measured().at("output_sha256"));
  }
  for (const std::string& hash : hashes) CHECK(hash == hashes.front());
}

TEST_CASE("the context of a card counts in the cap, the peak and the baseline") {
  const Workplace place;
  const Archive archive = model("blocks_12x64");
  auto card = nlohmann::json{{"name", "crowded"}, {"total_bytes", 256 * kMiB}, {"context_bytes", 0}};
  const auto card_file = place / "card.json";
  const auto plan_with_context = [&](std::uint64_t context) {
    card["context_bytes"] = context;
    write_text(card_file, card.dump());
    const Reported plan = place.plan(archive.path, {"--device", "sim:" + card_file.string()});
    INFO(plan.outcome.err);
    REQUIRE(plan.outcome.code == 0);
    CHECK(plan.plan().at("context_bytes") == context);
    return plan.plan().at("min_cap_bytes").get<std::uint64_t>();
  };
  const std::uint64_t bare = plan_with_context(0);
  const std::uint64_t crowded = plan_with_context(100 * kMiB);
  CHECK(crowded == bare + 100 * kMiB);

  const std::vector<fs::path> inputs{archive.inputs.front(), tokens(place, 0, 1, 9)};
  for (const char* after_job : {"keep", "release"}) {
    CAPTURE(after_job);
    const Reported run = run_ok(place, archive.path, inputs,
                                {"--device", "sim:" + card_file.string(), "--vram-cap",
                                 std::to_string(crowded), "--after-job", after_job});
    CHECK(run.measured().at("context_bytes") == 100 * kMiB);
    CHECK(run.measured().at("peak_bytes") > 100 * kMiB);
    CHECK(run.measured().at("peak_bytes") <= crowded);
  }
  const Reported below =
      place.run(archive.path, {archive.inputs.front()},
                {"--device", "sim:" + card_file.string(), "--vram-cap", std::to_string(crowded - 1)});
  check_refused(below.outcome, 3, {std::to_string(crowded)});
}
