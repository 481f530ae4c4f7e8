// Memory patterns as a host application sees them: same bits, every request of a known shape in its planned
// place, one level whatever the order.
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>

#include "graph/input_binding.hpp"
#include "graph/storages.hpp"
#include "lowtide/lowtide.hpp"
#include "lowtide/named_tensors.hpp"
#include "lowtide/report.hpp"
#include "session/model_data.hpp"
#include "support/archives.hpp"
#include "support/program.hpp"
#include "support/same_bits.hpp"

using namespace lowtide;
using test::same_bits;

namespace {

constexpr Bytes kGranule = 512;

std::string path_of(const std::string& name) {
  return std::string(LOWTIDE_MODELS) + "/" + name + ".pt2";
}

at::Tensor ids(std::int64_t batch, std::int64_t tokens) {
  return at::arange(batch * tokens).remainder(1000).view({batch, tokens});
}

std::vector<at::Tensor> on_cpu(const Model& model, const std::vector<at::Tensor>& inputs) {
  Session session({.threads = 1});
  return session.run(session.add(model), inputs);
}

/// The most that is alive at one time: in the order of the graph, views free, each storage rounded.
Bytes live_at_most(const Model& model, const InputShapes& shapes) {
  const graph::Program& program = model.data().program();
  const graph::ShapeTable sizes =
      graph::evaluate_shapes(program, graph::bind_inputs(program, model.data().describe(shapes)));
  const graph::StorageTable table =
      graph::analyse_storages(program.graph, sizes, model.data().file_of_input());
  Bytes most = 0;
  for (std::size_t step = 0; step < program.graph.nodes.size(); ++step) {
    Bytes live = 0;
    for (const graph::Storage& storage : table.storages) {
      if (storage.origin == graph::StorageOrigin::weight || step > storage.last) continue;
      const bool input = storage.origin == graph::StorageOrigin::user_input;
      if (input ? storage.used : storage.first <= step)
        live += (storage.bytes + kGranule - 1) / kGranule * kGranule;
    }
    most = std::max(most, live);
  }
  return most;
}

}  // namespace

TEST_CASE(
    "from its third job on every request of a shape is met from its planned place, with the cpu's bits, no "
    "call "
    "of the driver, and no byte more than was proved") {
  int archives = 0;
  for (const test::Archive& file : test::find_archives(LOWTIDE_MODELS)) {
    if (test::has_higher_order(file.name) || std::filesystem::file_size(file.path) > 16_MiB) continue;
    CAPTURE(file.name);
    const Model model = Model::open(file.path.string());
    const std::vector<at::Tensor> inputs = app::read_inputs(model, app::JobInputs(file.inputs.front()));
    const std::vector<at::Tensor> expected = on_cpu(model, inputs);
    Session session({.device = "sim", .threads = 1});
    const ModelHandle handle = session.add(model);
    const PlanSummary plan =
        session.plan(handle, app::read_shapes(model, app::JobInputs(file.inputs.front())));
    std::uint64_t asked_before = 0;
    for (int job = 0; job < 4; ++job) {
      CHECK(same_bits(session.run(handle, inputs), expected));
      const JobStats& stats = session.last_job();
      CHECK(*stats.peak_bytes <= *plan.peak_bytes);
      CHECK(*stats.used_after_bytes == *session.stats().context_bytes + *session.stats().kept_bytes);
      const std::uint64_t asked = *stats.plan_hits + *stats.plan_misses;
      if (job > 0) CHECK(asked == asked_before);
      asked_before = asked;
      if (job < 2 || plan.data_dependent) continue;
      CHECK(*stats.plan_misses == 0);
      CHECK(stats.driver_allocs == 0);
    }
    if (!plan.data_dependent) CHECK(*app::fragmentation(session.stats()) < 0.05);
    ++archives;
  }
  CHECK(archives >= 20);
}

TEST_CASE("a layout takes at most 5 % more than what is alive at once, at least half of them at most 1 %") {
  std::vector<double> ratios;
  for (const test::Archive& file : test::find_archives(LOWTIDE_MODELS)) {
    if (test::has_higher_order(file.name)) continue;
    CAPTURE(file.name);
    const Model model = Model::open(file.path.string());
    const InputShapes shapes = app::read_shapes(model, app::JobInputs(file.inputs.front()));
    Session session({.device = "sim"});
    const PlanSummary plan = session.plan(session.add(model), shapes);
    const Bytes bound = live_at_most(model, shapes);
    CHECK(plan.activation_lower_bound_bytes == bound);
    CHECK(plan.activation_bytes >= bound);
    if (bound == 0) continue;
    ratios.push_back(static_cast<double>(plan.activation_bytes) / static_cast<double>(bound));
    CHECK_MESSAGE(ratios.back() <= 1.05, file.name << ": " << ratios.back());
  }
  REQUIRE(ratios.size() >= 30);
  std::sort(ratios.begin(), ratios.end());
  CHECK(ratios[ratios.size() / 2] <= 1.01);
}

TEST_CASE(
    "ten shapes in any order: one level, no fragmentation, and all of them are known in the second round") {
  const Model model = Model::open(path_of("blocks_12x64"));
  std::set<Bytes> levels;
  for (std::uint64_t order = 0; order < 5; ++order) {
    std::vector<at::Tensor> inputs;
    for (int i = 0; i < 10; ++i) inputs.push_back(ids(1 + i % 2, 8 + 12 * i));
    std::mt19937_64 random(order);
    Session session({.device = "sim", .threads = 1});
    const ModelHandle handle = session.add(model);
    std::vector<PlannedJob> jobs;
    for (const at::Tensor& input : inputs) jobs.push_back({handle, {InputShape{input.sizes().vec()}}});
    session.plan_jobs(jobs);
    for (int round = 0; round < 6; ++round) {
      std::shuffle(inputs.begin(), inputs.end(), random);
      for (const at::Tensor& input : inputs) {
        session.run(handle, {input});
        if (round >= 2) {
          CHECK(*session.last_job().plan_misses == 0);
          CHECK(session.last_job().driver_allocs == 0);
        }
      }
    }
    CHECK(session.stats().patterns == 10);
    CHECK(*app::fragmentation(session.stats()) < 0.05);
    levels.insert(*session.stats().reserved_peak_bytes);
  }
  CHECK(levels.size() == 1);
}

TEST_CASE("a later process knows from its first job on what an earlier one has recorded") {
  const Model model = Model::open(path_of("blocks_12x64"));
  const std::vector<at::Tensor> inputs{ids(2, 64)};
  const auto expected = on_cpu(model, inputs);
  const test::TempFolder folder;
  const SessionOptions options{
      .device = "sim", .threads = 1, .learned_file = (folder / "learned.json").string()};
  {
    Session session(options);
    const ModelHandle handle = session.add(model);
    for (int job = 0; job < 2; ++job) session.run(handle, inputs);
    CHECK(*session.last_job().plan_hits == 0);
    session.remember();
  }
  Session session(options);
  CHECK(same_bits(session.run(session.add(model), inputs), expected));
  CHECK(*session.last_job().plan_misses == 0);
  CHECK(*session.last_job().plan_hits > 100);
}

TEST_CASE("without patterns each request is met by itself, with the same bits") {
  const Model model = Model::open(path_of("blocks_12x64"));
  const std::vector<at::Tensor> inputs{ids(2, 64)};
  const auto expected = on_cpu(model, inputs);
  Session session({.device = "sim", .pattern = false, .threads = 1});
  const ModelHandle handle = session.add(model);
  for (int job = 0; job < 4; ++job) {
    CHECK(same_bits(session.run(handle, inputs), expected));
    CHECK(*session.last_job().plan_hits == 0);
    CHECK(*session.last_job().plan_misses > 100);
  }
  CHECK(session.stats().patterns == 0);
}

TEST_CASE("the overflow region grows by the strategy, and goes back to the plan's level after the job") {
  const Model model = Model::open(path_of("blocks_12x64"));
  const std::vector<at::Tensor> inputs{ids(2, 64)};
  const auto run = [&](ArenaGrowth growth) {
    Session session({.device = "sim", .arena = growth, .threads = 1});
    const ModelHandle handle = session.add(model);
    session.run(handle, inputs);
    return std::pair(session.last_job().driver_allocs, *session.stats().reserved_peak_bytes);
  };
  const auto [exact_calls, exact_level] = run(ArenaGrowth::same_as_requested);
  const auto [doubling_calls, doubling_level] = run(ArenaGrowth::next_power_of_two);
  CHECK(doubling_calls < exact_calls);
  CHECK(doubling_level > exact_level);
}

TEST_CASE("waves have patterns of their own, for each composition of shapes") {
  const Model model = Model::open(path_of("blocks_12x64"));
  const std::vector<std::vector<at::Tensor>> jobs{{ids(2, 64)}, {ids(1, 32)}, {ids(2, 64)}};
  const Bytes smallest = [&] {
    Session session({.device = "sim", .wave = 3, .threads = 1});
    return *session.plan(session.add(model), {InputShape{{2, 64}}}).min_cap_bytes;
  }();
  for (const Bytes cap : {smallest + 1_MiB, smallest + 8_MiB}) {
    Session session({.device = "sim", .vram_cap = cap, .wave = 3, .threads = 1});
    const ModelHandle handle = session.add(model);
    for (int round = 0; round < 4; ++round) {
      const std::vector<JobOutcome> outcomes = session.run_many(handle, jobs);
      for (std::size_t i = 0; i < jobs.size(); ++i) {
        REQUIRE(outcomes[i].error == nullptr);
        CHECK(same_bits(outcomes[i].outputs, on_cpu(model, jobs[i])));
        CHECK(*outcomes[i].stats.peak_bytes <= cap);
        if (round == 3) CHECK(*outcomes[i].stats.plan_misses == 0);
      }
    }
  }
}

TEST_CASE("a device that gives no piece as large as the region meets each request by itself") {
  int refused = 0;
  for (const test::Archive& file : test::find_archives(LOWTIDE_MODELS)) {
    if (test::has_higher_order(file.name) || std::filesystem::file_size(file.path) > 16_MiB) continue;
    CAPTURE(file.name);
    const Model model = Model::open(file.path.string());
    const InputShapes shapes = app::read_shapes(model, app::JobInputs(file.inputs.front()));
    const auto plan_under = [&](std::optional<Bytes> cap) {
      Session session({.device = "sim", .vram_cap = cap, .threads = 1});
      return session.plan(session.add(model), shapes);
    };
    const Bytes smallest = *plan_under(std::nullopt).min_cap_bytes;
    const PlanSummary plan = plan_under(smallest);
    if (!plan.bounded || plan.activation_bytes < 2 * plan.kept_bytes) continue;
    const Bytes limit = plan.activation_bytes - kGranule;
    const test::TempFolder folder;
    test::write_text(folder / "card.json",
                     R"({"name": "test", "max_allocation_bytes": )" + std::to_string(limit) + "}");
    Session session({.device = "sim:" + (folder / "card.json").string(), .vram_cap = smallest, .threads = 1});
    const ModelHandle handle = session.add(model);
    const std::vector<at::Tensor> inputs = app::read_inputs(model, app::JobInputs(file.inputs.front()));
    for (int job = 0; job < 4; ++job) CHECK(same_bits(session.run(handle, inputs), on_cpu(model, inputs)));
    CHECK(*session.last_job().plan_hits == 0);
    ++refused;
  }
  CHECK(refused > 0);
}

TEST_CASE("patterns need a device whose places can be chosen") {
  CHECK_THROWS_AS(Session({.device = "cpu", .pattern = false}), UsageError);
  CHECK_THROWS_AS(Session({.device = "cpu", .arena = ArenaGrowth::next_power_of_two}), UsageError);
}

TEST_CASE("what a job with few found elements took says nothing about one with many") {
  const Model model = Model::open(path_of("zoo_nonzero"));
  const app::JobInputs files((std::filesystem::path(LOWTIDE_MODELS) / "zoo_nonzero.in.safetensors").string());
  const test::TempFolder folder;
  const std::string learned = (folder / "learned.json").string();
  const auto run_with = [&](double value, std::optional<Bytes> cap) {
    Session session({.device = "sim", .vram_cap = cap, .threads = 1, .learned_file = learned});
    const ModelHandle handle = session.add(model);
    const PlanSummary plan = session.plan(handle, app::read_shapes(model, files));
    CHECK(plan.data_dependent);
    CHECK(plan.workspace_state == WorkspaceState::bound);
    std::vector<at::Tensor> inputs = app::read_inputs(model, files);
    for (at::Tensor& input : inputs) {
      if (input.is_floating_point()) input = at::full(input.sizes(), value);
    }
    const auto expected = on_cpu(model, inputs);
    for (int job = 0; job < 3; ++job) {
      CHECK(same_bits(session.run(handle, inputs), expected));
      CHECK(*session.last_job().peak_bytes <= *plan.peak_bytes);
      CHECK(*session.last_job().plan_hits == 0);
    }
    session.remember();
    return *plan.min_cap_bytes;
  };
  const Bytes smallest = run_with(0, std::nullopt);
  CHECK(run_with(1, smallest) == smallest);
}

TEST_CASE("where a job of a wave fails, the others still find their planned places") {
  const Model model = Model::open(path_of("blocks_12x64"));
  Session session({.device = "sim", .wave = 3, .threads = 1});
  const ModelHandle handle = session.add(model);
  const at::Tensor good = ids(2, 64);
  std::vector<std::vector<at::Tensor>> jobs(3, {good});
  const auto expected = on_cpu(model, {good});
  for (int wave = 0; wave < 3; ++wave) session.run_many(handle, jobs);
  jobs[0] = {good.add(5000000)};  // ids beyond the table
  const std::vector<JobOutcome> outcomes = session.run_many(handle, jobs);
  CHECK(outcomes[0].error);
  for (std::size_t i = 1; i < 3; ++i) {
    REQUIRE(!outcomes[i].error);
    CHECK(same_bits(outcomes[i].outputs, expected));
    CHECK(*outcomes[i].stats.plan_misses == 0);
    CHECK(*outcomes[i].stats.plan_hits > 0);
  }
}

TEST_CASE("inputs of one shape with other strides have a pattern of their own") {
  const Model model = Model::open(path_of("page_orientation"));
  const InputShapes shapes = *model.sample_shapes();
  std::vector<at::Tensor> inputs;
  for (const auto& shape : shapes) inputs.push_back(at::full(shape->sizes, 0.5));
  std::vector<at::Tensor> other = inputs;
  std::size_t changed = 0;
  for (at::Tensor& input : other) {
    if (input.dim() != 4) continue;
    input = input.contiguous(at::MemoryFormat::ChannelsLast);
    ++changed;
  }
  REQUIRE(changed > 0);
  Session session({.device = "sim", .threads = 1});
  const ModelHandle handle = session.add(model);
  for (int round = 0; round < 4; ++round) {
    for (const auto& given : {inputs, other}) {
      session.run(handle, given);
      if (round >= 2) CHECK(*session.last_job().plan_misses == 0);
    }
  }
  CHECK(session.stats().patterns == 2);
}
