// State that lives on from job to job: as Python's calls in a row, the same bits everywhere, and as before
// where a job fails.
#include <ATen/ops/allclose.h>
#include <ATen/ops/full_like.h>
#include <doctest/doctest.h>

#include <algorithm>

#include "lowtide/lowtide.hpp"
#include "lowtide/named_tensors.hpp"
#include "support/archives.hpp"
#include "support/same_bits.hpp"
#include "tensor_file/tensor_file.hpp"

using namespace lowtide;
using test::same_bits;

namespace {

using Tensors = std::vector<at::Tensor>;

/// A model whose recorded calls form one sequence.
struct Sequence {
  Model model;
  std::vector<Tensors> calls;
  std::vector<Tensors> python;
  InputShapes shapes;

  explicit Sequence(const std::string& name) : model(Model::open(path(name) + ".pt2")) {
    for (const test::Archive& archive : test::find_archives(LOWTIDE_MODELS)) {
      if (archive.name != name) continue;
      for (std::size_t i = 0; i < archive.inputs.size(); ++i) {
        calls.push_back(app::read_inputs(model, app::JobInputs(archive.inputs[i])));
        Tensors& outputs = python.emplace_back(model.output_names().size());
        for (const auto& [output, tensor] : tensor_file::read_tensors(archive.outputs[i])) {
          const auto& names = model.output_names();
          outputs.at(static_cast<std::size_t>(std::find(names.begin(), names.end(), output) -
                                              names.begin())) = tensor;
        }
      }
      shapes = app::read_shapes(model, app::JobInputs(archive.inputs.front()));
    }
  }
  static std::string path(const std::string& name) { return std::string(LOWTIDE_MODELS) + "/" + name; }
};

std::vector<Tensors> run_all(Session& session, ModelHandle handle, const std::vector<Tensors>& calls) {
  std::vector<Tensors> results;
  for (const Tensors& call : calls) results.push_back(session.run(handle, call));
  return results;
}

const std::vector<std::string> kNames{"qwen3_static", "zoo_mutate_functional", "zoo_mutate_input"};

}  // namespace

TEST_CASE("with kept state, calls in a row are what they are in Python") {
  for (const std::string& name : kNames) {
    CAPTURE(name);
    const Sequence sequence(name);
    REQUIRE(sequence.calls.size() > 1);
    Session session({.device = "cpu"});
    const auto results = run_all(session, session.add(sequence.model, {.keep_state = true}), sequence.calls);
    for (std::size_t i = 0; i < results.size(); ++i) {
      CAPTURE(i);
      for (std::size_t o = 0; o < results[i].size(); ++o)
        CHECK(at::allclose(results[i][o].to(at::kDouble), sequence.python[i][o].to(at::kDouble), 1e-4, 1e-4));
    }
    Session fresh({.device = "cpu"});  // without it, each starts from the archive's
    const auto alone = run_all(fresh, fresh.add(sequence.model), sequence.calls);
    CHECK(same_bits(alone[0], results[0]));
    CHECK_FALSE(same_bits(alone[1], results[1]));
  }
}

TEST_CASE(
    "kept state gives the cpu's bits on the card at each cap, within the proof, and does not travel while it "
    "stays") {
  for (const std::string& name : kNames) {
    CAPTURE(name);
    const Sequence sequence(name);
    Session cpu({.device = "cpu", .threads = 1});
    const auto expected = run_all(cpu, cpu.add(sequence.model, {.keep_state = true}), sequence.calls);
    for (const AfterJob after : {AfterJob::keep, AfterJob::release}) {
      CAPTURE(static_cast<int>(after));
      std::optional<Bytes> cap;
      Bytes least = 0;
      for (int round = 0; round < 3; ++round) {
        Session session({.device = "sim", .vram_cap = cap, .after_job = after, .threads = 1});
        const ModelHandle handle = session.add(sequence.model, {.keep_state = true});
        const PlanSummary plan = session.plan(handle, sequence.shapes);
        CHECK(plan.state_bytes > 0);
        if (round == 0) least = *plan.min_cap_bytes;
        for (std::size_t i = 0; i < sequence.calls.size(); ++i) {
          CHECK(same_bits(session.run(handle, sequence.calls[i]), expected[i]));
          CHECK(*session.last_job().peak_bytes <= *plan.peak_bytes);
          CHECK(*session.last_job().used_after_bytes ==
                *session.stats().context_bytes + *session.stats().kept_bytes);
          const Bytes state = after == AfterJob::keep ? plan.state_bytes / 2 : plan.state_bytes;
          if (round == 0 && i > 0 && after == AfterJob::keep) CHECK(session.last_job().h2d_bytes < state);
        }
        cap = round == 0 ? least : (least + *plan.peak_bytes) / 2;
      }
      Session session({.device = "sim", .vram_cap = least - 1, .after_job = after, .threads = 1});
      const ModelHandle handle = session.add(sequence.model, {.keep_state = true});
      CHECK_THROWS_AS(session.plan(handle, sequence.shapes), PlanInfeasible);
    }
  }
}

TEST_CASE("a job that fails or is cancelled leaves the state of before") {
  for (const std::string& name : kNames) {
    const Sequence sequence(name);
    for (const std::string device : {"cpu", "sim"}) {
      for (const AfterJob after : {AfterJob::keep, AfterJob::release}) {
        if (device == "cpu" && after == AfterJob::release) continue;
        CAPTURE(device);
        Session session({.device = device, .after_job = after, .threads = 1});
        const ModelHandle handle = session.add(sequence.model, {.keep_state = true});
        const auto expected = run_all(session, handle, sequence.calls);
        session.reset_state(handle);
        for (std::size_t i = 0; i < sequence.calls.size(); ++i) {
          session.cancel();
          CHECK_THROWS_AS(session.run(handle, sequence.calls[i]), Cancelled);
          session.cancel(false);
          Tensors bad = sequence.calls[i];
          bool worse = false;
          for (at::Tensor& input : bad) {  // beyond every table
            if (input.scalar_type() != at::kLong || input.dim() != 2) continue;
            input = at::full_like(input, 50000000);
            worse = true;
          }
          if (worse) CHECK_THROWS_AS(session.run(handle, bad), Error);
          CHECK(same_bits(session.run(handle, sequence.calls[i]), expected[i]));
        }
      }
    }
  }
}

TEST_CASE("state that was saved goes on in another session, and is refused where it does not fit") {
  for (const std::string& name : kNames) {
    const Sequence sequence(name);
    Session whole({.device = "cpu", .threads = 1});
    const auto expected = run_all(whole, whole.add(sequence.model, {.keep_state = true}), sequence.calls);
    std::vector<NamedTensor> state;
    {
      Session session({.device = "sim", .threads = 1});
      const ModelHandle handle = session.add(sequence.model, {.keep_state = true});
      session.run(handle, sequence.calls[0]);
      state = session.save_state(handle);
      REQUIRE(!state.empty());
      CHECK(same_bits(session.run(handle, sequence.calls[1]), expected[1]));  // saving changes nothing
    }
    for (const std::string device : {"cpu", "sim"}) {
      Session session({.device = device, .threads = 1});
      const ModelHandle handle = session.add(sequence.model, {.keep_state = true});
      session.load_state(handle, state);
      CHECK(same_bits(session.run(handle, sequence.calls[1]), expected[1]));
      std::vector<NamedTensor> other = state;
      other.pop_back();
      CHECK_THROWS_AS(session.load_state(handle, other), InputError);
      other = state;
      other[0].name = "nobody";
      CHECK_THROWS_AS(session.load_state(handle, other), InputError);
      other = state;
      other[0].tensor = other[0].tensor.flatten().narrow(0, 0, 1);
      CHECK_THROWS_AS(session.load_state(handle, other), InputError);
      if (sequence.calls.size() > 2) CHECK(same_bits(session.run(handle, sequence.calls[2]), expected[2]));
    }
  }
}

TEST_CASE("a model without state has none to keep") {
  const Model model = Model::open(Sequence::path("blocks_12x64") + ".pt2");
  Session session({.device = "cpu"});
  CHECK_THROWS_AS(session.add(model, {.keep_state = true}), UsageError);
  const ModelHandle handle = session.add(model);
  CHECK_THROWS_AS(session.save_state(handle), UsageError);
}
