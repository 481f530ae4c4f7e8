// Archives that cannot be run: one clear line and exit code 4, whatever is wrong with them.
#include <ATen/ops/ones.h>
#include <doctest/doctest.h>

#include "archive/archive_builder.hpp"
#include "e2e/e2e_support.hpp"

using namespace lowtide;
using namespace lowtide::test;
namespace fs = std::filesystem;

namespace {

/// Runs, plans and inspects `bytes` as an archive; all three must refuse it.
void check_bad(const std::string& bytes, const std::vector<std::string>& parts) {
  const Workplace place;
  const fs::path archive = place / "bad.pt2";
  write_text(archive, bytes);
  const fs::path input = place.input("x.safetensors", {{"x", at::ones({3, 4})}});
  std::vector<std::string> all = parts;
  all.push_back("bad.pt2");
  check_refused(place.run(archive, {input}, {"--device", "cpu"}).outcome, 4, all);
  check_refused(place.run(archive, {input}, {"--device", "sim"}).outcome, 4, all);
  check_refused(place.plan(archive, {"--device", "sim"}).outcome, 4, all);
  CHECK_FALSE(fs::exists(place.out() / "x.safetensors"));
}

void check_bad_weights(const std::string& from, const std::string& to,
                       const std::vector<std::string>& parts) {
  ArchiveBuilder builder;
  builder.edit_weights(from, to);
  check_bad(builder.bytes(), parts);
}

}  // namespace

TEST_CASE("the archive that the following tests damage runs") {
  const Workplace place;
  write_text(place / "good.pt2", ArchiveBuilder().bytes());
  const fs::path input = place.input("x.safetensors", {{"image", at::ones({3, 4})}});
  for (const char* device : {"cpu", "sim"}) {
    const Reported run = place.run(place / "good.pt2", {input}, {"--device", device});
    INFO(run.outcome.err);
    CHECK(run.outcome.code == 0);
  }
}

TEST_CASE("a truncated archive is refused") {
  const std::string whole = ArchiveBuilder().bytes();
  for (const std::size_t percent : {10, 50, 90, 99}) {
    CAPTURE(percent);
    check_bad(whole.substr(0, whole.size() * percent / 100), {});
  }
}

TEST_CASE("a truncated archive of a real model is refused") {
  const std::string whole = read_text(model("silero_vad").path);
  check_bad(whole.substr(0, whole.size() / 2), {});
  check_bad(whole.substr(0, whole.size() - 100), {});
}

TEST_CASE("a weight record with a lying size is refused") {
  for (const std::uint32_t size : {4U, 63U, 1'000'000U, 0xFFFFFFFEU}) {
    CAPTURE(size);
    std::string bytes = ArchiveBuilder().bytes();
    lie_about_size(bytes, "data/weights/weight_0", size);
    check_bad(bytes, {});
  }
}

TEST_CASE("a weight that leaves its storage is refused") {
  check_bad_weights(R"("strides": [{"as_int": 1}])", R"("strides": [{"as_int": 6}])",
                    {"needs 76 bytes", "weight_0"});
  check_bad_weights(R"("sizes": [{"as_int": 4}])", R"("sizes": [{"as_int": 17}])", {"needs 68 bytes"});
  check_bad_weights(R"("storage_offset": {"as_int": 12})", R"("storage_offset": {"as_int": -1})",
                    {"negative"});
}

TEST_CASE("an operator that does not exist is named") {
  ArchiveBuilder builder;
  builder.edit_model("torch.ops.aten.relu.default", "torch.ops.mylib.fancy_relu.default");
  check_bad(builder.bytes(), {"mylib", "fancy_relu"});
}

TEST_CASE("look-alikes are named for what they are") {
  check_bad("", {"is empty"});
  check_bad(read_text(model("silero_vad").inputs.front()), {"is a safetensors file"});
  std::string gguf = "GGUF\3";
  gguf.resize(100);
  check_bad(gguf, {"GGUF"});
  check_bad("hello", {"is not an exported program"});
  ArchiveBuilder script;
  script.clear();
  for (const char* record : {"code/__torch__.py", "constants.pkl", "data.pkl"}) script.set(record, "x");
  check_bad(script.bytes(), {"TorchScript"});
}

TEST_CASE("higher-order operators are refused before anything runs") {
  for (const char* name : {"zoo_cond", "zoo_scan", "zoo_while"}) {
    CAPTURE(name);
    const Workplace place;
    const Archive archive = model(name);
    for (const char* device : {"cpu", "sim"})
      check_refused(place.run(archive.path, archive.inputs, {"--device", device}).outcome, 4,
                    {name, "higher-order operator", "torch.ops.higher_order."});
    CHECK_FALSE(fs::exists(place.out()));
  }
}

TEST_CASE("a missing archive and a folder in its place are refused") {
  const Workplace place;
  const Archive archive = model("ocr_cls");
  check_refused(place.run(place / "none.pt2", archive.inputs, {"--device", "cpu"}).outcome, 4,
                {"none.pt2", "No such file"});
  fs::create_directory(place / "folder.pt2");
  check_refused(place.run(place / "folder.pt2", archive.inputs, {"--device", "cpu"}).outcome, 4,
                {"is a folder"});
}
