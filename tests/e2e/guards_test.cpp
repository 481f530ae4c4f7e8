// Conditions of the export: sizes outside of them fail with a line that helps, and the others are done.
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>

#include "e2e/e2e_support.hpp"
#include "lowtide/model.hpp"
#include "lowtide/named_tensors.hpp"
#include "session/model_data.hpp"

using namespace lowtide;
using namespace lowtide::test;
namespace fs = std::filesystem;

namespace {

std::optional<std::int64_t> number_at(const InputShapes& shapes, const graph::GuardPlace& place) {
  const auto& shape = shapes.at(place.input);
  if (!shape) return std::nullopt;
  return place.dimension ? std::optional(shape->sizes.at(*place.dimension)) : shape->integer;
}

/// Checks the guards of the archive against its inputs and returns how many there are.
std::size_t check_guards(const Archive& archive) {
  const Model opened = Model::open(archive.path.string());
  const graph::Program& program = opened.data().program();
  for (const fs::path& input : archive.inputs) {
    const InputShapes shapes = app::read_shapes(opened, input);
    for (const graph::Guard& guard : program.guards) {
      CAPTURE(guard.text());
      CHECK(guard.reason() == "");
      std::vector<std::optional<std::int64_t>> values;
      for (const graph::GuardPlace& place : guard.places()) values.push_back(number_at(shapes, place));
      CHECK(guard.evaluate(values) == graph::GuardVerdict::holds);
    }
  }
  return program.guards.size();
}

}  // namespace

TEST_CASE("every archive's guards are evaluated, and hold for the inputs that belong to it") {
  // The fast archives with guards; those with higher-order operators have none.
  std::size_t guards = 0;
  for (const char* name : {"minilm_l6", "ocr_v6_det", "ocr_v6_rec", "silero_vad", "zoo_symint_input"}) {
    CAPTURE(name);
    const Archive archive = model(name);
    CHECK_FALSE(archive.inputs.empty());
    const std::size_t found = check_guards(archive);
    CHECK(found > 0);
    guards += found;
  }
  CHECK(guards > 30);
}

TEST_CASE("a job outside of a guard fails with the guard and the nearest size, and the others are done") {
  const Workplace place;
  const Archive archive = model("ocr_v6_rec");
  const auto line_of = [](std::int64_t width) { return at::rand({1, 3, 48, width}); };
  const std::vector<fs::path> inputs{place.input("fits.safetensors", {{"args_0", line_of(64)}}),
                                     place.input("odd.safetensors", {{"args_0", line_of(66)}}),
                                     place.input("narrow.safetensors", {{"args_0", line_of(7)}}),
                                     place.input("also_fits.safetensors", {{"args_0", line_of(72)}})};
  for (const char* device : {"cpu", "sim"}) {
    CAPTURE(device);
    const Reported run = place.run(archive.path, inputs, {"--device", device});
    INFO(run.outcome.err);
    CHECK(run.outcome.code == 1);
    REQUIRE(run.report.is_object());
    REQUIRE(run.jobs().size() == 4);
    CHECK(run.jobs()[0].at("status") == "ok");
    CHECK(run.jobs()[3].at("status") == "ok");
    for (const std::size_t failed : {1, 2}) CHECK(run.jobs()[failed].at("status") == "failed");
    std::vector<std::string> failures;
    for (const std::string& line : lines(run.outcome.err))
      if (line.starts_with("failed ")) failures.push_back(line);
    REQUIRE(failures.size() == 2);
    for (const char* part :
         {"odd.safetensors", "input 'args_0', dimension 3 is 66", "% 2) == 0", "nearest allowed: 64"})
      CHECK(failures[0].find(part) != std::string::npos);
    for (const char* part :
         {"narrow.safetensors", "smallest that the model was exported for, 13", "nearest allowed: 13"})
      CHECK(failures[1].find(part) != std::string::npos);
  }
}

TEST_CASE("inspect shows each guard and whether it is evaluated") {
  const Workplace place;
  const Outcome outcome = place.lowtide({"inspect", model("silero_vad").path.string()});
  CHECK(outcome.code == 0);
  CHECK(outcome.out.find("guards\n  1, 0 of them not evaluated\n  evaluated     L['x'].size()[0] == "
                         "L['state'].size()[1]\n") != std::string::npos);
}
