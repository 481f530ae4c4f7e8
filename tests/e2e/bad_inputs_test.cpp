// Inputs that cannot be run: a line each, exit code 1, and the others are done.
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <doctest/doctest.h>

#include "e2e/e2e_support.hpp"

using namespace lowtide;
using namespace lowtide::test;
namespace fs = std::filesystem;

namespace {

/// The line that stderr has about a failed input; empty where there is none.
std::string failure_of(const Outcome& outcome, const std::string& id) {
  for (const std::string& line : lines(outcome.err))
    if (line.starts_with("failed   " + id)) return line;
  return {};
}

struct BadInput {
  fs::path path;
  std::vector<std::string> parts;  // what its line must say
};

/// Runs ocr_cls over the bad inputs and a good one, which comes last.
void check_bad_inputs(const Workplace& place, const std::vector<BadInput>& bad, const std::string& device) {
  CAPTURE(device);
  std::vector<fs::path> inputs;
  for (const BadInput& input : bad) inputs.push_back(input.path);
  const fs::path good = place.input("good.safetensors", {{"args_0", at::rand({1, 3, 48, 192})}});
  inputs.push_back(good);
  const Reported run = place.run(model("ocr_cls").path, inputs, {"--device", device});
  INFO(run.outcome.err);
  CHECK(run.outcome.code == 1);
  REQUIRE(run.report.is_object());
  REQUIRE(run.jobs().size() == inputs.size());
  for (std::size_t i = 0; i < bad.size(); ++i) {
    const std::string line = failure_of(run.outcome, bad[i].path.filename().string());
    CHECK(line != "");
    for (const std::string& part : bad[i].parts) {
      CAPTURE(part);
      CHECK(line.find(part) != std::string::npos);
    }
    CHECK(run.jobs()[i].at("status") == "failed");
    CHECK_FALSE(fs::exists((place.out() / bad[i].path.filename()).replace_extension(".safetensors")));
  }
  CHECK(run.jobs().back().at("status") == "ok");
  CHECK(fs::exists(place.out() / good.filename()));
}

}  // namespace

TEST_CASE("an input of the wrong name, shape, rank or dtype fails, and the others are done") {
  const Workplace place;
  const at::Tensor image = at::ones({1, 3, 48, 192});
  const std::vector<BadInput> bad{
      {place.input("name.safetensors", {{"picture", image}}), {"no input 'picture'", "args_0"}},
      {place.input("shape.safetensors", {{"args_0", at::ones({1, 3, 48, 191})}}), {"args_0", "191"}},
      {place.input("rank.safetensors", {{"args_0", at::ones({48, 192})}}), {"args_0", "[48, 192]"}},
      {place.input("dtype.safetensors", {{"args_0", image.to(at::kLong)}}), {"args_0", "i64", "f32"}},
      {place.input("missing.safetensors", {}), {"args_0"}},
      {place.input("twice.safetensors", {{"args_0", image}, {"0000", image}}), {"args_0", "twice"}}};
  for (const char* device : {"cpu", "sim"}) check_bad_inputs(place, bad, device);
}

TEST_CASE("an input that cannot be read fails, and the others are done") {
  const Workplace place;
  const std::string whole = read_text(model("ocr_cls").inputs.front());
  write_text(place / "empty.safetensors", "");
  write_text(place / "garbage.npy", "this is no array");
  write_text(place / "cut.safetensors", whole.substr(0, whole.size() / 2));
  write_text(place / "page.png", whole);
  const std::vector<BadInput> bad{{place / "empty.safetensors", {"empty.safetensors", "0 bytes"}},
                                  {place / "garbage.npy", {"garbage.npy"}},
                                  {place / "cut.safetensors", {"cut.safetensors"}},
                                  {place / "page.png", {"extension"}}};
  for (const char* device : {"cpu", "sim"}) check_bad_inputs(place, bad, device);
}

TEST_CASE("inputs that all fail exit 1") {
  const Workplace place;
  const Reported run = place.run(model("ocr_cls").path,
                                 {place.input("x.safetensors", {{"x", at::ones({1})}})}, {"--device", "sim"});
  CHECK(run.outcome.code == 1);
  CHECK(failure_of(run.outcome, "x.safetensors") != "");
}

TEST_CASE("a quiet run still names what failed, and nothing else") {
  const Workplace place;
  const Archive archive = model("ocr_cls");
  const fs::path bad = place.input("x.safetensors", {{"x", at::ones({1})}});
  const Reported run = place.run(archive.path, {archive.inputs[0], bad}, {"--device", "cpu", "--quiet"});
  CHECK(run.outcome.code == 1);
  CHECK(lines(run.outcome.err).size() == 1);
  CHECK(failure_of(run.outcome, "x.safetensors") != "");
}

TEST_CASE("a folder without inputs, an empty folder and a missing path are wrong usage") {
  const Workplace place;
  const Archive archive = model("ocr_cls");
  fs::create_directory(place / "empty");
  check_refused(place.run(archive.path, {place / "empty"}, {"--device", "cpu"}).outcome, 2,
                {"no inputs", "empty"});
  fs::create_directory(place / "texts");
  write_text(place / "texts" / "readme.txt", "hello");
  check_refused(place.run(archive.path, {place / "texts"}, {"--device", "cpu"}).outcome, 2,
                {"no inputs", "texts"});
  check_refused(
      place.run(archive.path, {archive.inputs[0], place / "none.safetensors"}, {"--device", "cpu"}).outcome,
      2, {"none.safetensors", "does not exist"});
  CHECK_FALSE(fs::exists(place.out()));  // nothing was run
}

TEST_CASE("a folder is read in name order, and files of other types are ignored and counted") {
  const Workplace place;
  const fs::path folder = place / "pages";
  for (const char* name : {"pages/b.safetensors", "pages/a.safetensors", "pages/c.safetensors"})
    place.input(name, {{"args_0", at::rand({1, 3, 48, 192})}});
  write_text(folder / "notes.txt", "");
  write_text(folder / "page.png", "");
  const Reported run = place.run(model("ocr_cls").path, {folder}, {"--device", "cpu"});
  CHECK(run.outcome.code == 0);
  CHECK(run.outcome.err.find("2 files of other types ignored") != std::string::npos);
  REQUIRE(run.jobs().size() == 3);
  CHECK(run.jobs()[0].at("id") == "a.safetensors");
  CHECK(run.jobs()[1].at("id") == "b.safetensors");
  CHECK(run.jobs()[2].at("id") == "c.safetensors");
}

TEST_CASE("equal stems in two folders keep their relative path") {
  const Workplace place;
  const std::vector<fs::path> folders{place / "left", place / "right"};
  for (const char* side : {"left", "right"})
    place.input(std::string(side) + "/page.safetensors", {{"args_0", at::rand({1, 3, 48, 192})}});
  const Reported run = place.run(model("ocr_cls").path, folders, {"--device", "cpu"});
  INFO(run.outcome.err);
  CHECK(run.outcome.code == 0);
  const fs::path left = place.out() / "left" / "page.safetensors",
                 right = place.out() / "right" / "page.safetensors";
  REQUIRE(fs::exists(left));
  REQUIRE(fs::exists(right));
  CHECK(read_text(left) != read_text(right));
}

TEST_CASE("inputs whose results would have one name, or overwrite an input, are wrong usage") {
  const Workplace place;
  const Archive archive = model("ocr_cls");
  const fs::path input = place.input("same/page.safetensors", {{"args_0", at::rand({1, 3, 48, 192})}});
  write_text(place / "same" / "page.npy", "x");
  check_refused(place.run(archive.path, {place / "same"}, {"--device", "cpu"}).outcome, 2, {"page.npy"});
  const std::string before = read_text(input);
  check_refused(place.lowtide({"run", archive.path.string(), input.string(), "--out",
                               (place / "same").string(), "--device", "cpu"}),
                2, {"overwrite"});
  CHECK(read_text(input) == before);
}
