// The library as a host application sees it: one device, one cap, back to baseline after every job, whatever
// happened.
#include "lowtide/session.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <doctest/doctest.h>

#include <fstream>
#include <thread>

#include "device/device.hpp"
#include "support/program.hpp"
#include "support/same_bits.hpp"

using namespace lowtide;
using test::same_bits;

namespace {

std::string archive(const std::string& name) {
  return std::string(LOWTIDE_MODELS) + "/" + name + ".pt2";
}

at::Tensor ids(std::int64_t batch, std::int64_t tokens) {
  return at::arange(batch * tokens).remainder(1000).view({batch, tokens});
}

std::vector<at::Tensor> on_cpu(const std::string& name, const std::vector<at::Tensor>& inputs) {
  Session session({.device = "cpu"});
  return session.run(session.add(Model::open(archive(name))), inputs);
}

/// Writes a card with these JSON members and returns the device name for it.
std::string card(const test::TempFolder& folder, const std::string& members) {
  const auto path = folder / "card.json";
  test::write_text(path, "{\"name\": \"test\", " + members + "}");
  return "sim:" + path.string();
}

Bytes smallest_cap(const Model& model, const InputShapes& shapes) {
  Session session({.device = "sim"});
  return *session.plan(session.add(model), shapes).min_cap_bytes;
}

}  // namespace

TEST_CASE(
    "the bits of the cpu come out at every cap, and the device is back at its baseline after every job") {
  const Model model = Model::open(archive("blocks_12x64"));
  const std::vector<at::Tensor> inputs{ids(2, 64)};
  const auto expected = on_cpu("blocks_12x64", inputs);
  const Bytes smallest = smallest_cap(model, {InputShape{{2, 64}}});
  for (const AfterJob after : {AfterJob::keep, AfterJob::release}) {
    for (const Bytes cap : {smallest, smallest + 300000, smallest + 100_MiB}) {
      Session session({.device = "sim", .vram_cap = cap, .after_job = after});
      const ModelHandle handle = session.add(model);
      for (int i = 0; i < 3; ++i) {
        CHECK(same_bits(session.run(handle, inputs), expected));
        CHECK(*session.last_job().peak_bytes <= cap);
        CHECK(*session.last_job().used_after_bytes ==
              *session.stats().context_bytes + *session.stats().kept_bytes);
      }
      if (after == AfterJob::release) CHECK(*session.stats().kept_bytes == 0);
    }
  }
}

TEST_CASE("a cap below the smallest is refused before anything moves, and the named cap works") {
  const Model model = Model::open(archive("blocks_12x64"));
  const InputShapes shapes{InputShape{{2, 64}}};
  const Bytes smallest = smallest_cap(model, shapes);
  Session session({.device = "sim", .vram_cap = smallest - 1});
  const ModelHandle handle = session.add(model);
  try {
    session.run(handle, {ids(2, 64)});
    FAIL("was run");
  } catch (const PlanInfeasible& e) {
    CHECK(e.min_cap() == smallest);
    CHECK(std::string(e.what()).find("aten::") != std::string::npos);  // names the node that needs most
  }
  CHECK(session.stats().h2d_bytes == 0);
  Session works({.device = "sim", .vram_cap = smallest});
  CHECK_NOTHROW(works.run(works.add(model), {ids(2, 64)}));
}

TEST_CASE(
    "raising the limit on single allocations from nothing, each failure is typed and leaves the device "
    "clean") {
  const test::TempFolder folder;
  const Model model = Model::open(archive("blocks_12x64"));
  const auto expected = on_cpu("blocks_12x64", {ids(2, 64)});
  int failures = 0;
  bool succeeded = false;
  for (Bytes limit = 512; !succeeded && limit < 64_MiB; limit *= 2) {
    Session session({.device = card(folder, "\"max_allocation_bytes\": " + std::to_string(limit))});
    const ModelHandle handle = session.add(model);
    for (int attempt = 0; attempt < 2; ++attempt) {
      try {
        const auto results = session.run(handle, {ids(2, 64)});
        CHECK(same_bits(results, expected));
        succeeded = true;
      } catch (const OutOfBudget&) {
        ++failures;
        session.trim();
        CHECK(*session.last_job().used_after_bytes <= *session.stats().kept_bytes);
      }
    }
  }
  CHECK(succeeded);
  CHECK(failures >= 2);
}

TEST_CASE("an operator that fails names its node and source line, and the next job is right") {
  const Model model = Model::open(archive("blocks_12x64"));
  const auto expected = on_cpu("blocks_12x64", {ids(2, 64)});
  for (const char* device : {"cpu", "sim"}) {
    Session session({.device = device});
    const ModelHandle handle = session.add(model);
    try {
      session.run(handle, {at::full({2, 64}, 5000, at::kLong)});  // beyond the vocabulary of 1000
      FAIL("was run");
    } catch (const OperatorError& e) {
      const std::string message = e.what();
      CHECK(message.find("aten::embedding") != std::string::npos);
      CHECK(message.find(".py:") != std::string::npos);
      CHECK(message.find('\n') == std::string::npos);
    }
    CHECK(same_bits(session.run(handle, {ids(2, 64)}), expected));
  }
}

TEST_CASE("wrong inputs are refused by name, expected and given shape, before the device is touched") {
  Session session({.device = "sim"});
  const ModelHandle handle = session.add(Model::open(archive("blocks_12x64")));
  CHECK_THROWS_AS(session.run(handle, {}), InputError);
  CHECK_THROWS_AS(session.run(handle, {ids(2, 64), ids(2, 64)}), InputError);
  CHECK_THROWS_AS(session.run(handle, {at::rand({2, 64})}), InputError);
  CHECK_THROWS_AS(session.run(handle, {ids(2, 64).view({-1})}), InputError);
  CHECK(session.stats().h2d_bytes == 0);
}

TEST_CASE("a cancelled job ends with Cancelled; afterwards the session works as before") {
  const auto expected = on_cpu("blocks_12x64", {ids(2, 64)});
  Session session({.device = "sim"});
  const ModelHandle handle = session.add(Model::open(archive("blocks_12x64")));
  session.cancel();
  CHECK_THROWS_AS(session.run(handle, {ids(2, 64)}), Cancelled);
  session.cancel(false);
  CHECK(same_bits(session.run(handle, {ids(2, 64)}), expected));
}

TEST_CASE("two models in one session share the slab and take turns without mixing results") {
  const auto first = on_cpu("blocks_12x64", {ids(2, 64)});
  const std::vector<at::Tensor> lines{at::rand({2, 3, 48, 192})};
  const auto second = on_cpu("ocr_cls", lines);
  Session session({.device = "sim"});
  const ModelHandle a = session.add(Model::open(archive("blocks_12x64")));
  const ModelHandle b = session.add(Model::open(archive("ocr_cls")));
  const Bytes kept =
      session.plan_jobs({{a, {InputShape{{2, 64}}}}, {b, {InputShape{{2, 3, 48, 192}}}}}).front().kept_bytes;
  for (int i = 0; i < 3; ++i) {
    CHECK(same_bits(session.run(a, {ids(2, 64)}), first));
    CHECK(same_bits(session.run(b, lines), second));
    CHECK(*session.last_job().used_after_bytes == kept);
  }
}

TEST_CASE("state starts from the archive in every job and the caller's tensors are never written") {
  for (const char* device : {"cpu", "sim"}) {
    Session session({.device = device});
    const ModelHandle handle = session.add(Model::open(archive("zoo_mutate_input")));
    const at::Tensor cache = at::full({2, 3, 4}, 0.0);
    const at::Tensor x = at::rand({2, 4});
    const auto once = session.run(handle, {cache, x});
    CHECK(once[2].item().toLong() == 1);
    CHECK(same_bits(session.run(handle, {cache, x}), once));
    CHECK(cache.abs().sum().item().toDouble() == 0);
  }
}

TEST_CASE("a measured peak is remembered, lowers the smallest cap, and that cap works") {
  const test::TempFolder folder;
  const std::string file = (folder / "sub/learned.json").string();
  const Model model = Model::open(archive("blocks_12x64"));
  const InputShapes shapes{InputShape{{2, 64}}};
  const Bytes before = smallest_cap(model, shapes);
  {
    Session session({.device = "sim", .learned_file = file});
    session.run(session.add(model), {ids(2, 64)});
    session.remember();
  }
  Session session({.device = "sim", .learned_file = file});
  const PlanSummary plan = session.plan(session.add(model), shapes);
  CHECK(plan.workspace_state == WorkspaceState::learned);
  CHECK(*plan.min_cap_bytes < before);
  Session tight({.device = "sim", .vram_cap = *plan.min_cap_bytes, .learned_file = file});
  const ModelHandle handle = tight.add(model);
  CHECK(same_bits(tight.run(handle, {ids(2, 64)}), on_cpu("blocks_12x64", {ids(2, 64)})));
  CHECK(*tight.last_job().peak_bytes <= *plan.min_cap_bytes);
  SUBCASE("a damaged file counts as none") {
    test::write_text(file, "{\"a\": [1, 2");
    Session fresh({.device = "sim", .learned_file = file});
    CHECK(*fresh.plan(fresh.add(model), shapes).min_cap_bytes == before);
  }
}

TEST_CASE("once learned, the proof is the measured peak exactly") {
  const test::TempFolder folder;
  const std::string file = (folder / "learned.json").string();
  for (int round = 0; round < 2; ++round) {
    Session session({.device = "sim", .learned_file = file});
    const ModelHandle handle = session.add(Model::open(archive("ocr_cls")));
    const PlanSummary plan = session.plan(handle, {InputShape{{2, 3, 48, 192}}});
    session.run(handle, {at::rand({2, 3, 48, 192})});
    CHECK(*session.last_job().peak_bytes <= *plan.peak_bytes);
    if (round == 1) CHECK(*session.last_job().peak_bytes == *plan.peak_bytes);
    session.remember();
  }
}

TEST_CASE("calls from several threads queue and never mix") {
  const auto small = on_cpu("blocks_12x64", {ids(1, 17)});
  const auto large = on_cpu("blocks_12x64", {ids(2, 64)});
  Session session({.device = "sim"});
  const ModelHandle handle = session.add(Model::open(archive("blocks_12x64")));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 5; ++i) {
        const bool is_small = (t + i) % 2 == 0;
        const auto results = session.run(handle, {is_small ? ids(1, 17) : ids(2, 64)});
        if (!same_bits(results, is_small ? small : large)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("the context of the card counts against the cap") {
  const test::TempFolder folder;
  const Model model = Model::open(archive("blocks_12x64"));
  const Bytes smallest = smallest_cap(model, {InputShape{{2, 64}}});
  Session session({.device = card(folder, "\"context_bytes\": 1000000"), .vram_cap = smallest + 1000000});
  session.run(session.add(model), {ids(2, 64)});
  CHECK(*session.stats().context_bytes == 1000000);
  CHECK(*session.last_job().used_after_bytes == 1000000 + *session.stats().kept_bytes);
  Session refused({.device = card(folder, "\"context_bytes\": 1000000"), .vram_cap = smallest + 999999});
  CHECK_THROWS_AS(refused.run(refused.add(model), {ids(2, 64)}), PlanInfeasible);
}

TEST_CASE("options that have no effect are refused") {
  CHECK_THROWS_AS(Session({.device = "cpu", .vram_cap = 1_GiB}), UsageError);
  CHECK_THROWS_AS(Session({.device = "cpu", .low_vram = true}), UsageError);
  CHECK_THROWS_AS(Session({.device = "tpu"}), UsageError);
  CHECK_THROWS_AS(Session({.device = "sim:nothing-of-that-name"}), UsageError);
  if (!device::cuda_available()) CHECK_THROWS_AS(Session({.device = "cuda"}), DeviceError);
}
