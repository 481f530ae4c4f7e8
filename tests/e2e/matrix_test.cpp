// Every archive of tools/get_models, on the cpu and on the simulated card: results, proof, bits.
#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <set>

#include "e2e/e2e_support.hpp"

using namespace lowtide;
using namespace lowtide::test;
namespace fs = std::filesystem;

namespace {

constexpr double kTolerance = 1e-4;
constexpr double kBfloat16Tolerance = 5e-2;
/// Larger archives run for minutes under every cap: bench/ and the demo run those, once.
constexpr std::uintmax_t kLargestArchive = 120'000'000;
/// Beyond this a run takes seconds: two inputs and fewer caps must do.
constexpr std::uintmax_t kSmallArchive = 2'000'000;
const char* const kHugeCard = "sim:64GiB";

bool is_small(const Archive& archive) {
  return fs::file_size(archive.path) < kSmallArchive;
}

std::vector<Archive> archives_under_test() {
  std::vector<Archive> chosen;
  for (Archive& archive : find_archives(LOWTIDE_MODELS)) {
    if (has_higher_order(archive.name) || fs::file_size(archive.path) > kLargestArchive) continue;
    if (archive.name.starts_with("mixed_")) continue;  // plan_property runs these under more caps than here
    // Later calls continue from the state that the first one left, and every job starts from the archive's.
    const std::size_t most = archive.stateful ? 1 : is_small(archive) ? archive.inputs.size() : 2;
    archive.inputs.resize(std::min(most, archive.inputs.size()));
    chosen.push_back(std::move(archive));
  }
  return chosen;
}

fs::path output_of(const Workplace& place, const fs::path& input) {
  return place.out() / input.filename();
}

/// The results on the cpu, which all others are compared with.
struct Reference {
  std::string sha256;
  std::string first_output;  // the bytes of the first input's output file
  std::uint64_t weight_bytes = 0;
};

/// Nothing where the run failed.
std::optional<Reference> check_results_on_cpu(const Workplace& place, const Archive& archive) {
  const Reported cpu = place.run(archive.path, archive.inputs, {"--device", "cpu"});
  INFO(cpu.outcome.err);
  CHECK(cpu.outcome.code == 0);
  if (cpu.outcome.code != 0) return std::nullopt;
  const double tolerance = archive.name.find("bf16") == std::string::npos ? kTolerance : kBfloat16Tolerance;
  for (std::size_t i = 0; i < archive.inputs.size(); ++i) {
    CAPTURE(archive.inputs[i].filename().string());
    CHECK(difference(output_of(place, archive.inputs[i]), archive.outputs[i], tolerance) == "");
  }
  return Reference{.sha256 = cpu.measured().at("output_sha256"),
                   .first_output = read_text(output_of(place, archive.inputs.front())),
                   .weight_bytes = cpu.measured().at("weight_bytes")};
}

/// Runs under a cap; checks exit code, peak and what is left on the device. Nothing where the run failed.
std::optional<Reported> check_run_under_cap(const Workplace& place, const Archive& archive,
                                            const std::vector<fs::path>& inputs, std::uint64_t cap,
                                            const Arguments& options) {
  Arguments all{"--vram-cap", std::to_string(cap)};
  all.insert(all.end(), options.begin(), options.end());
  Reported run = place.run(archive.path, inputs, all);
  CAPTURE(cap);
  INFO(run.outcome.err);
  CHECK(run.outcome.code == 0);
  if (run.outcome.code != 0) return std::nullopt;
  CHECK(run.report.at("cap_bytes") == cap);
  CHECK(run.plan().at("peak_bytes") <= cap);
  CHECK(run.measured().at("peak_bytes") <= run.plan().at("peak_bytes"));
  check_baseline(run);
  return run;
}

/// The smallest cap for these inputs, from the report of a run that cannot fit; 0 without a report.
std::uint64_t check_cannot_fit(const Workplace& place, const Archive& archive,
                               const std::vector<fs::path>& inputs, std::uint64_t cap) {
  fs::remove_all(place.out());
  const Reported run =
      place.run(archive.path, inputs, {"--device", "sim", "--vram-cap", std::to_string(cap)});
  INFO(run.outcome.err);
  CHECK(run.report.is_object());
  if (!run.report.is_object()) return 0;
  const std::uint64_t smallest = run.plan().at("min_cap_bytes");
  check_refused(run.outcome, 3, {archive.name, std::to_string(smallest)});
  CHECK(run.measured().at("h2d_bytes") == 0);
  CHECK(run.jobs().empty());
  CHECK_FALSE(fs::exists(output_of(place, inputs.front())));
  return smallest;
}

void check_smallest_cap(const Workplace& place, const Archive& archive, const Reference& reference) {
  const Reported plan = place.plan(archive.path, {"--device", "sim"});
  INFO(plan.outcome.err);
  CHECK(plan.outcome.code == 0);
  if (plan.outcome.code != 0) return;
  const std::uint64_t smallest = plan.plan().at("min_cap_bytes");
  const std::vector<fs::path> first{archive.inputs.front()};
  CHECK(check_cannot_fit(place, archive, first, smallest - 1) == smallest);
  if (!check_run_under_cap(place, archive, first, smallest, {"--device", "sim"})) return;
  const bool same_bytes = read_text(output_of(place, first.front())) == reference.first_output;
  CHECK(same_bytes);
}

void check_bits(const Workplace& place, const Archive& archive, const Reference& reference) {
  const std::uint64_t smallest = check_cannot_fit(place, archive, archive.inputs, 1);
  const std::uint64_t between = smallest + reference.weight_bytes * 3 / 10;
  const std::uint64_t all = std::uint64_t{64} << 30;
  std::vector<std::pair<std::uint64_t, const char*>> runs{{between, "release"}, {all, "keep"}};
  if (is_small(archive))
    runs.insert(runs.end(), {{smallest, "release"}, {smallest, "keep"}, {between, "keep"}, {all, "release"}});
  for (const auto& [cap, after_job] : runs) {
    CAPTURE(after_job);
    CAPTURE(cap);
    const auto run = check_run_under_cap(place, archive, archive.inputs, cap,
                                         {"--device", kHugeCard, "--after-job", after_job});
    if (run) CHECK(run->measured().at("output_sha256") == reference.sha256);
  }
}

}  // namespace

TEST_CASE("the archives of the tests are there, of every kind") {
  std::set<std::string> names;
  for (const Archive& archive : archives_under_test()) {
    CAPTURE(archive.name);
    CHECK_FALSE(archive.inputs.empty());
    names.insert(archive.name);
  }
  for (const char* name :
       {"blocks_12x64", "minilm_l6", "ocr_v6_det", "ocr_v6_rec", "silero_vad", "zoo_args", "zoo_complex",
        "zoo_dtypes", "zoo_mutate_input", "zoo_nonzero", "zoo_symint_input"}) {
    CAPTURE(name);
    CHECK(names.count(name) == 1);
  }
}

TEST_CASE(
    "every archive gives the expected results, works at its smallest cap and not below, with the same bits "
    "under every cap") {
  for (const Archive& archive : archives_under_test()) {
    CAPTURE(archive.name);
    const Workplace place;
    const std::optional<Reference> reference = check_results_on_cpu(place, archive);
    if (!reference) continue;
    check_smallest_cap(place, archive, *reference);
    check_bits(place, archive, *reference);
  }
}
