// Options, devices, job lists and folders that make no sense: one clear line and the documented exit code.
#include <doctest/doctest.h>

#include <cstdlib>

#include "e2e/e2e_support.hpp"

using namespace lowtide;
using namespace lowtide::test;
namespace fs = std::filesystem;

namespace {

/// Refusal of `lowtide run ocr_cls.pt2 INPUT --out OUT OPTIONS`, with nothing written.
void check_wrong_run(const Arguments& options, int code, const std::vector<std::string>& parts) {
  const Workplace place;
  const Archive archive = model("ocr_cls");
  Arguments arguments{"run", archive.path.string(), archive.inputs[0].string(), "--out",
                      place.out().string()};
  arguments.insert(arguments.end(), options.begin(), options.end());
  std::string text;
  for (const std::string& option : options) text += option + " ";
  CAPTURE(text);
  check_refused(place.lowtide(arguments), code, parts);
  CHECK_FALSE(fs::exists(place.out()));
}

nlohmann::json job(const std::string& id, const Archive& archive) {
  return {{"id", id},
          {"model", archive.path.string()},
          {"inputs", archive.inputs[0].string()},
          {"output", id + ".safetensors"}};
}

}  // namespace

TEST_CASE("help and version go to stdout") {
  const Workplace place;
  const Outcome help = place.lowtide({"--help"});
  CHECK(help.code == 0);
  CHECK(help.err == "");
  for (const char* command : {"run", "plan", "inspect", "measure", "doctor"})
    CHECK(help.out.find(command) != std::string::npos);
  const Outcome run_help = place.lowtide({"run", "--help"});
  CHECK(run_help.code == 0);
  for (const char* option : {"--out", "--jobs", "--device", "--vram-cap", "--low-vram", "--after-job",
                             "--ram-cap", "--wave", "--allow-split", "--report"})
    CHECK(run_help.out.find(option) != std::string::npos);
  const Outcome version = place.lowtide({"--version"});
  CHECK(version.code == 0);
  CHECK(version.out.starts_with("lowtide "));
}

TEST_CASE("a wrong command line is named") {
  const Workplace place;
  const std::string archive = model("ocr_cls").path.string(), out = place.out().string();
  check_refused(place.lowtide({}), 2, {"subcommand"});
  check_refused(place.lowtide({"frob", archive}), 2, {"'frob'", "run, plan, inspect, measure, doctor"});
  check_refused(place.lowtide({"run"}), 2, {});
  check_refused(place.lowtide({"run", archive, "--out", out}), 2, {"INPUT"});
  check_refused(place.lowtide({"run", archive, archive}), 2, {"--out"});
  check_refused(place.lowtide({"plan"}), 2, {"model"});
  check_wrong_run({"--frobnicate"}, 2, {"--frobnicate"});
  check_wrong_run({"--after-job", "maybe", "--device", "sim"}, 2, {"--after-job"});
  for (const char* wave : {"0", "4097", "-1", "many", "2.5"})
    check_wrong_run({"--wave", wave, "--device", "sim"}, 2, {"--wave", wave, "1 to 4096", "auto"});
  check_wrong_run({"--threads", "0"}, 2, {"--threads"});
  check_wrong_run({"--threads", "many"}, 2, {"--threads"});
  check_wrong_run({"--program", "nosuch", "--device", "cpu"}, 2, {"nosuch", "model"});
}

TEST_CASE("an option without effect is wrong usage") {
  check_wrong_run({"--device", "cpu", "--vram-cap", "1GiB"}, 2, {"--vram-cap", "no effect"});
  check_wrong_run({"--device", "cpu", "--low-vram"}, 2, {"--low-vram", "no effect"});
  check_wrong_run({"--device", "cpu", "--after-job", "keep"}, 2, {"--after-job", "no effect"});
  check_wrong_run({"--device", "cpu", "--after-job", "release"}, 2, {"--after-job", "no effect"});
  check_wrong_run({"--device", "sim", "--low-vram", "--after-job", "keep"}, 2, {"--after-job", "--low-vram"});
  for (const char* wave : {"1", "4", "auto"})
    check_wrong_run({"--device", "cpu", "--wave", wave}, 2, {"--wave", "no effect"});
  check_wrong_run({"--device", "cpu", "--allow-split"}, 2, {"--allow-split", "no effect"});
  const Workplace place;
  const std::string archive = model("ocr_cls").path.string();
  check_refused(place.lowtide({"plan", archive, "--device", "cpu", "--svg", (place / "x.svg").string()}), 2,
                {"--svg", "no effect"});
  CHECK_FALSE(fs::exists(place / "x.svg"));
  check_refused(
      place.lowtide({"run", "--jobs", "-", "--out", place.out().string(), "--device", "sim", "--wave", "4"}),
      2, {"--wave", "no effect", "--jobs -"});
  check_refused(place.lowtide({"measure", archive, "--device", "sim", "--wave", "4"}), 2, {"--wave"});
}

TEST_CASE("sizes that are none are wrong usage") {
  for (const char* size : {"lots", "-5", "1.5", "3Gib", "12 parsecs", "99999999999GiB", "1e400", "nan"})
    check_wrong_run({"--device", "sim", "--vram-cap", size}, 2, {size});
}

TEST_CASE("devices that are none are wrong usage, and cards that are too small do not fit") {
  check_wrong_run({"--device", "tpu"}, 2, {"tpu", "sim"});
  check_wrong_run({"--device", "cuda:x"}, 2, {"cuda:x"});
  check_wrong_run({"--device", "sim:nosuchcard"}, 2, {"nosuchcard", "default"});
  check_wrong_run({"--device", "sim:3Gib"}, 2, {"3Gib"});
  check_wrong_run({"--device", "sim:64KiB"}, 3, {"smallest"});
  const Workplace place;
  write_text(place / "card.json", R"({"name": "odd", "total_bytes": -1})");
  check_wrong_run({"--device", "sim:" + (place / "card.json").string()}, 2, {"total_bytes"});
  write_text(place / "card.json", "{");
  check_wrong_run({"--device", "sim:" + (place / "card.json").string()}, 2, {"card.json"});
}

TEST_CASE("without a GPU, cuda exits 5 and says why, and so does doctor") {
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);  // a machine with a GPU then is as one without
  check_wrong_run({"--device", "cuda"}, 5, {"no CUDA device can be used", "NVIDIA driver", "--device cpu"});
  check_wrong_run({"--device", "cuda:7"}, 5, {"no CUDA device can be used", "NVIDIA driver"});
  const Workplace place;
  const Outcome doctor = place.lowtide({"doctor"});
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  CHECK(doctor.code == 0);
  CHECK(doctor.err == "");
  for (const char* part :
       {"physical cores", "sensible pin budget", "cuda", "NVIDIA driver", "simulated card", "--vram-cap"})
    CHECK(doctor.out.find(part) != std::string::npos);
}

TEST_CASE("shapes that the model does not take are wrong usage of plan") {
  const Workplace place;
  const fs::path archive = model("ocr_cls").path;
  check_refused(place.plan(archive, {"--shape", "picture=1x3"}).outcome, 2, {"picture", "args_0"});
  check_refused(place.plan(archive, {"--shape", "args_0=1xx3"}).outcome, 2, {"1xx3"});
  check_refused(place.plan(archive, {"--shape", "args_0"}).outcome, 2, {"--shape"});
  check_refused(place.plan(archive, {"--shape", "args_0=2x3"}).outcome, 2, {"args_0", "[2, 3]"});
}

TEST_CASE("an output folder that cannot be made is named, with what to do") {
  const Workplace place;
  const Archive archive = model("ocr_cls");
  write_text(place / "file", "");
  for (const fs::path& out : {place / "file", place / "file" / "below"}) {
    const Outcome outcome = place.lowtide(
        {"run", archive.path.string(), archive.inputs[0].string(), "--out", out.string(), "--device", "cpu"});
    check_refused(outcome, 2, {"cannot", out.string(), "--out"});
  }
}

TEST_CASE("a report that cannot be written is wrong usage, before anything runs") {
  const Workplace place;
  const Archive archive = model("ocr_cls");
  const Outcome outcome =
      place.lowtide({"run", archive.path.string(), archive.inputs[0].string(), "--out", place.out().string(),
                     "--device", "cpu", "--report", (place / "none" / "report.json").string()});
  check_refused(outcome, 2, {"report.json"});
}

TEST_CASE("job lists that are missing or empty are wrong usage") {
  const Workplace place;
  const Archive archive = model("ocr_cls");
  const std::string out = place.out().string(), list = (place / "jobs.jsonl").string();
  check_refused(place.lowtide({"run", "--jobs", list, "--out", out, "--device", "cpu"}), 2, {"jobs.jsonl"});
  write_text(list, "\n  \n");
  check_refused(place.lowtide({"run", "--jobs", list, "--out", out, "--device", "cpu"}), 2, {"no jobs"});
  check_refused(place.lowtide({"run", "--jobs", "-", "--out", out, "--device", "cpu"}), 2, {"no jobs"});
  check_refused(place.lowtide({"run", archive.path.string(), archive.inputs[0].string(), "--jobs", list,
                               "--out", out, "--device", "cpu"}),
                2, {"job list"});
}

TEST_CASE("malformed lines of a job list fail one by one, and the others are done, by two models") {
  const Workplace place;
  const Archive first = model("ocr_cls"), second = model("blocks_12x64");
  auto no_inputs = job("c", first);
  no_inputs.erase("inputs");
  auto odd_key = job("d", first);
  odd_key["color"] = "red";
  auto escape = job("e", first);
  escape["output"] = "../e.safetensors";
  auto no_archive = job("f", first);
  no_archive["model"] = "none.pt2";
  auto no_file = job("g", first);
  no_file["inputs"] = {{"args_0", (place / "none.npy").string()}};
  auto again = job("h", first);
  again["output"] = "a.safetensors";
  std::string text;
  for (const std::string& line :
       {job("a", first).dump(), std::string("{\"id\": \"b\""), no_inputs.dump(), odd_key.dump(),
        escape.dump(), no_archive.dump(), no_file.dump(), again.dump(), job("z", second).dump()})
    text += line + "\n";
  write_text(place / "jobs.jsonl", text);

  for (const std::string& source : {(place / "jobs.jsonl").string(), std::string("-")}) {
    CAPTURE(source);
    fs::remove_all(place.out());
    const Reported run =
        place.reported({"run", "--jobs", source, "--out", place.out().string(), "--device", "sim"}, text);
    INFO(run.outcome.err);
    CHECK(run.outcome.code == 1);
    REQUIRE(run.report.is_object());
    REQUIRE(run.jobs().size() == 9);
    for (std::size_t i = 0; i < 9; ++i) {
      CAPTURE(i);
      const bool good = i == 0 || i == 8;
      CHECK(run.jobs()[i].at("status") == (good ? "ok" : "failed"));
      CHECK(run.jobs()[i].at("error").is_null() == good);
    }
    for (const char* problem :
         {"JSON", "'inputs' is missing", "color", "'..'", "none.pt2", "none.npy", "already written"})
      CHECK(run.outcome.err.find(problem) != std::string::npos);
    CHECK(fs::exists(place.out() / "a.safetensors"));
    CHECK(fs::exists(place.out() / "z.safetensors"));
    CHECK_FALSE(fs::exists(place / "e.safetensors"));
  }
}

TEST_CASE("jobs of two models run in turn, from a file and from standard input, with the same results") {
  const Workplace place;
  const Archive first = model("ocr_cls"), second = model("blocks_12x64");
  std::string text;
  for (int i = 0; i < 6; ++i)
    text += job("job" + std::to_string(i), i % 2 == 0 ? first : second).dump() + "\n";
  write_text(place / "jobs.jsonl", text);
  std::vector<std::string> hashes;
  for (const std::string& source : {(place / "jobs.jsonl").string(), std::string("-")}) {
    for (const Arguments& device : {Arguments{"--device", "cpu"}, Arguments{"--device", "sim"},
                                    Arguments{"--device", "sim", "--after-job", "release"}}) {
      Arguments arguments{"run", "--jobs", source, "--out", place.out().string()};
      arguments.insert(arguments.end(), device.begin(), device.end());
      const Reported run = place.reported(arguments, text);
      INFO(run.outcome.err);
      REQUIRE(run.outcome.code == 0);
      CHECK(run.jobs().size() == 6);
      CHECK(run.report.at("models").size() == 2);
      // A stream does not tell which models will come: what is kept may grow until all of them have.
      const bool all_known = source != "-" || device.back() == "release";
      if (device[1] == "sim" && all_known) check_baseline(run);
      if (device[1] == "sim")
        CHECK(run.jobs().back().at("used_after_bytes") == run.measured().at("kept_bytes"));
      hashes.push_back(run.measured().at("output_sha256"));
    }
  }
  for (const std::string& hash : hashes) CHECK(hash == hashes.front());
}
