// The planner's promises over archives of every kind and twenty caps each, and over waves.
#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "lowtide/lowtide.hpp"
#include "lowtide/named_tensors.hpp"
#include "support/archives.hpp"
#include "support/program.hpp"
#include "support/same_bits.hpp"

using namespace lowtide;
using test::same_bits;

namespace {

constexpr int kCaps = 20;
/// One run of these takes a second or so; the end-to-end matrix runs them under several caps.
const std::set<std::string> kTooSlow{"ocr_v6_det", "resnet50", "minilm_l6", "layout_cdla"};

/// Quiet: a plan that is too small for a shape is what some of these are about.
SessionOptions on_card(const std::filesystem::path& learned, std::optional<Bytes> cap = std::nullopt) {
  return {.device = "sim", .vram_cap = cap, .threads = 1, .learned_file = learned.string()};
}

std::vector<at::Tensor> on_cpu(const Model& model, const std::vector<at::Tensor>& inputs) {
  Session session({.threads = 1});
  return session.run(session.add(model), inputs);
}

std::vector<at::Tensor> inputs_from(const Model& model, const std::filesystem::path& file) {
  return app::read_inputs(model, app::JobInputs(file));
}

/// Runs the job often enough for everything that can be measured to be known.
PlanSummary learn(const Model& model, const InputShapes& shapes, const std::vector<at::Tensor>& inputs,
                  const std::filesystem::path& learned) {
  {
    Session session(on_card(learned));
    const ModelHandle handle = session.add(model);
    for (int run = 0; run < 2; ++run) session.run(handle, inputs);
    session.remember();
  }
  Session session(on_card(learned));
  return session.plan(session.add(model), shapes);
}

/// From just below the smallest to the resident peak, growing by a constant factor.
std::vector<Bytes> caps_between(Bytes smallest, Bytes resident) {
  std::vector<Bytes> caps{smallest - 1};
  for (int i = 0; i + 1 < kCaps; ++i)
    caps.push_back(static_cast<Bytes>(
        double(smallest) * std::pow(double(resident) / double(smallest), double(i) / (kCaps - 2))));
  return caps;
}

struct Archive {
  std::string name;
  Model model;
  std::filesystem::path input;
};

std::vector<Archive> archives() {
  std::vector<Archive> found;
  for (const test::Archive& archive : test::find_archives(LOWTIDE_MODELS)) {
    if (test::has_higher_order(archive.name) || kTooSlow.contains(archive.name)) continue;
    if (std::filesystem::file_size(archive.path) > 64_MiB) continue;
    found.push_back({archive.name, Model::open(archive.path.string()), archive.inputs.front()});
  }
  return found;
}

}  // namespace

TEST_CASE(
    "at each of twenty caps an archive is refused with numbers, or gives the cpu's bits with measured peak = "
    "proof <= cap and the predicted time") {
  const std::vector<Archive> all = archives();
  CHECK(all.size() >= 30);
  double worst_time = 0;
  for (const auto& [name, model, input] : all) {
    CAPTURE(name);
    const test::TempFolder folder;
    const std::vector<at::Tensor> inputs = inputs_from(model, input);
    const InputShapes shapes = app::read_shapes(model, app::JobInputs(input));
    const std::vector<at::Tensor> expected = on_cpu(model, inputs);
    const PlanSummary resident = learn(model, shapes, inputs, folder / "learned.json");
    double slower_cap_s = INFINITY;
    for (const Bytes cap : caps_between(*resident.min_cap_bytes, *resident.peak_bytes)) {
      CAPTURE(cap);
      Session session(on_card(folder / "learned.json", cap));
      const ModelHandle handle = session.add(model);
      if (cap < *resident.min_cap_bytes) {
        try {
          session.run(handle, inputs);
          FAIL_CHECK("a cap below the smallest was accepted");
        } catch (const PlanInfeasible& refused) {
          CHECK(refused.min_cap() == *resident.min_cap_bytes);
          CHECK(std::string(refused.what()).find(std::to_string(refused.min_cap())) != std::string::npos);
        }
        continue;
      }
      const PlanSummary plan = session.plan(handle, shapes);
      session.run(handle, inputs);
      const auto results = session.run(handle, inputs);
      CHECK(same_bits(results, expected));
      CHECK(*plan.peak_bytes <= cap);
      const JobStats& job = session.last_job();
      CHECK(*job.peak_bytes <= *plan.peak_bytes);
      if (!plan.data_dependent) CHECK(*job.peak_bytes == *plan.peak_bytes);
      CHECK(*job.used_after_bytes == plan.kept_bytes);
      CHECK(*job.modelled_s <= slower_cap_s * 1.0001);
      slower_cap_s = *job.modelled_s;
      if (plan.data_dependent || *job.modelled_s == 0) continue;
      const double difference = std::abs(*plan.predicted_s / *job.modelled_s - 1);
      worst_time = std::max(worst_time, difference);
      CHECK_MESSAGE(difference < 0.05, name << " at " << cap << ": predicted " << *plan.predicted_s
                                            << " s, modelled " << *job.modelled_s << " s");
    }
  }
  MESSAGE(all.size() << " archives; predicted and modelled time differ by at most " << worst_time * 100
                     << " %");
}

TEST_CASE(
    "in a wave of any size under any cap, jobs of different shapes keep their bits and the proof holds") {
  for (const char* name : {"blocks_12x64", "mixed_00", "mixed_03", "mixed_06", "mixed_08", "ocr_cls"}) {
    CAPTURE(name);
    const test::TempFolder folder;
    const Model model = Model::open((std::filesystem::path(LOWTIDE_MODELS) / name).string() + ".pt2");
    std::vector<std::vector<at::Tensor>> jobs, expected;
    std::vector<PlannedJob> planned;
    for (int i = 0; i < 7; ++i) {
      const auto file = std::filesystem::path(LOWTIDE_MODELS) /
                        (std::string(name) + (i % 3 == 1 ? ".1" : "") + ".in.safetensors");
      jobs.push_back(inputs_from(model, file));
      expected.push_back(on_cpu(model, jobs.back()));
      planned.push_back({{0}, app::read_shapes(model, app::JobInputs(file))});
    }
    Bytes smallest = 0, resident = 0;
    {
      Session session(on_card(""));
      session.add(model);
      for (const PlanSummary& plan : session.plan_jobs(planned)) {
        smallest = *plan.min_cap_bytes;
        resident = std::max(resident, *plan.peak_bytes);
      }
    }
    for (const int wave : {2, 3, 7, 0}) {
      for (const double share : {0.0, 0.1, 0.4, 1.0}) {
        for (const AfterJob after_job : {AfterJob::keep, AfterJob::release}) {
          CAPTURE(wave);
          CAPTURE(share);
          SessionOptions options =
              on_card("", smallest + static_cast<Bytes>(share * double(resident - smallest)));
          options.wave = wave;
          options.after_job = after_job;
          Session session(options);
          const ModelHandle handle = session.add(model);
          Bytes proved = 0;
          for (const PlanSummary& plan : session.plan_jobs(planned)) {
            proved = std::max(proved, *plan.peak_bytes);
            if (wave > 0) CHECK(plan.wave == wave);
          }
          CHECK(proved <= *options.vram_cap);
          const std::vector<JobOutcome> outcomes = session.run_many(handle, jobs);
          REQUIRE(outcomes.size() == jobs.size());
          for (std::size_t i = 0; i < jobs.size(); ++i) {
            REQUIRE(!outcomes[i].error);
            CHECK(same_bits(outcomes[i].outputs, expected[i]));
            CHECK(*outcomes[i].stats.peak_bytes <= proved);
            CHECK(*outcomes[i].stats.used_after_bytes == *session.stats().kept_bytes);
          }
        }
      }
    }
  }
}

TEST_CASE(
    "models that take turns keep their bits at every cap, within one proof, in the predicted time, and find "
    "what they left on the device once there is room") {
  struct Turn {
    Model model;
    std::vector<at::Tensor> inputs, expected;
    InputShapes shapes;
    int jobs;
  };
  const test::TempFolder folder;
  const auto learned = folder / "learned.json";
  std::vector<Turn> turns;
  for (const auto& [name, jobs] : {std::pair("blocks_12x64", 2), {"mixed_03", 1}, {"mixed_08", 1}}) {
    const auto path = std::filesystem::path(LOWTIDE_MODELS) / name;
    Turn turn{.model = Model::open(path.string() + ".pt2"), .jobs = jobs};
    const app::JobInputs file(path.string() + ".in.safetensors");
    turn.inputs = app::read_inputs(turn.model, file);
    turn.shapes = app::read_shapes(turn.model, file);
    turn.expected = on_cpu(turn.model, turn.inputs);
    learn(turn.model, turn.shapes, turn.inputs, learned);
    turns.push_back(std::move(turn));
  }
  const auto plan_all = [&](Session& session) {
    std::vector<PlannedJob> cycle;
    for (const Turn& turn : turns) {
      const ModelHandle handle = session.add(turn.model);
      cycle.insert(cycle.end(), static_cast<std::size_t>(turn.jobs), {handle, turn.shapes});
    }
    return session.plan_jobs(cycle);
  };
  Bytes smallest = 0, largest = 0, together = 0;
  {
    Session session(on_card(learned));
    for (const PlanSummary& plan : plan_all(session)) {
      smallest = *plan.min_cap_bytes;
      largest = std::max(largest, *plan.peak_bytes);
      together += plan.resident_bytes;
    }
  }
  CHECK(together <= largest);  // everything stays
  double slower_cap_s = INFINITY;
  for (const Bytes cap : caps_between(smallest, largest)) {
    if (cap < smallest) continue;
    CAPTURE(cap);
    Session session(on_card(learned, cap));
    const std::vector<PlanSummary> plans = plan_all(session);
    double predicted_s = 0, modelled_s = 0;
    Bytes moved = 0;
    for (int cycle = 0; cycle < 3; ++cycle) {
      predicted_s = modelled_s = 0;
      moved = 0;
      for (std::size_t i = 0; i < turns.size(); ++i) {
        for (int job = 0; job < turns[i].jobs; ++job) {
          CHECK(same_bits(session.run({i}, turns[i].inputs), turns[i].expected));
          CHECK(*session.last_job().peak_bytes <= *plans[i].peak_bytes);
          CHECK(*session.last_job().used_after_bytes == plans[i].kept_bytes);
          predicted_s += *plans[i].predicted_s;
          modelled_s += *session.last_job().modelled_s;
          moved += session.last_job().h2d_bytes;
        }
        CHECK(*plans[i].peak_bytes <= cap);
      }
    }
    CHECK(predicted_s <= slower_cap_s * 1.0001);
    slower_cap_s = predicted_s;
    CHECK_MESSAGE(std::abs(predicted_s / modelled_s - 1) < 0.05,
                  "predicted " << predicted_s << " s, modelled " << modelled_s << " s");
    if (cap >= largest) CHECK(moved < 1_MiB);  // inputs alone
  }
}
