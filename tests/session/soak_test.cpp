// Nothing climbs: not over many jobs of many shapes, not over sessions that open and close.
#include <ATen/ops/arange.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "base/host_facts.hpp"
#include "lowtide/lowtide.hpp"
#include "lowtide/steady_state.hpp"
#include "support/same_bits.hpp"

using namespace lowtide;

namespace {

/// What an allocator may still settle by, over a whole test; the long soak sees slow leaks all the better.
constexpr double kSettling = 2 * 1024 * 1024;

std::string archive(const std::string& name) {
  return std::string(LOWTIDE_MODELS) + "/" + name + ".pt2";
}

at::Tensor ids(std::int64_t batch, std::int64_t tokens) {
  return at::arange(batch * tokens).remainder(1000).view({batch, tokens});
}

int soak_jobs() {
  const char* given = std::getenv("LOWTIDE_SOAK_JOBS");
  return given == nullptr ? 300 : std::atoi(given);
}

std::size_t open_files() {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                                                std::filesystem::directory_iterator()));
}

/// Without the first third, in which everything is seen for the first time.
void check_flat(const std::vector<double>& host_bytes) {
  const std::vector<double> later(host_bytes.begin() + static_cast<std::ptrdiff_t>(host_bytes.size() / 3),
                                  host_bytes.end());
  const app::Trend trend = app::fit_trend(later);
  CHECK_MESSAGE(!trend.rises(kSettling / static_cast<double>(later.size())),
                "host memory rises by " << trend.per_run << " +- " << trend.half_width << " bytes a step");
}

}  // namespace

TEST_CASE(
    "over many jobs of thirty shapes in random order the level after each job is one number and memory is "
    "flat") {
  std::vector<at::Tensor> inputs;
  for (int i = 0; i < 30; ++i) inputs.push_back(ids(1 + i % 3, 4 + 3 * i));
  std::vector<at::Tensor> expected;
  Session on_cpu({.threads = 1});
  const Model model = Model::open(archive("blocks_12x64"));
  const ModelHandle reference = on_cpu.add(model);
  for (const at::Tensor& input : inputs) expected.push_back(on_cpu.run(reference, {input}).front());

  Session session({.device = "sim", .vram_cap = 4_MiB, .threads = 1});
  const ModelHandle handle = session.add(model);
  std::vector<PlannedJob> planned;
  for (const at::Tensor& input : inputs) planned.push_back({handle, {InputShape{input.sizes().vec()}}});
  const Bytes kept = session.plan_jobs(planned).front().kept_bytes;
  for (int warm_up = 0; warm_up < 2; ++warm_up) {
    for (const at::Tensor& input : inputs) session.run(handle, {input});
  }
  std::mt19937 random(3);
  std::vector<double> host_bytes;
  for (int job = 0; job < soak_jobs(); ++job) {
    const std::size_t shape = random() % inputs.size();
    const auto results = session.run(handle, {inputs[shape]});
    REQUIRE(*session.last_job().used_after_bytes == kept);
    REQUIRE(results.front().equal(expected[shape]));
    host_bytes.push_back(static_cast<double>(host_resident_bytes().value_or(0)));
  }
  check_flat(host_bytes);
}

TEST_CASE(
    "a session and a model that open and close again and again leave memory, locks and files as they were") {
  std::vector<double> host_bytes;
  std::size_t files = 0;
  Bytes pinned = 0;
  for (int round = 0; round < 100; ++round) {
    {
      Session session({.device = "sim", .vram_cap = 4_MiB, .threads = 1});
      const ModelHandle handle = session.add(Model::open(archive("blocks_12x64")));
      session.run(handle, {ids(2, 16)});
      const SessionStats stats = session.stats();
      if (round == 0) pinned = stats.pinned_bytes;
      REQUIRE(stats.pinned_bytes == pinned);
      REQUIRE(*stats.peak_bytes <= 4_MiB);
    }
    if (round == 10) files = open_files();
    if (round > 10) REQUIRE(open_files() == files);
    host_bytes.push_back(static_cast<double>(host_resident_bytes().value_or(0)));
  }
  check_flat(host_bytes);
}
