// Ctrl-C while a batch runs.
#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <set>
#include <thread>

#include "e2e/e2e_support.hpp"

using namespace lowtide;
using namespace lowtide::test;
namespace fs = std::filesystem;

namespace {

constexpr int kJobs = 2000;  // far more than run before the interrupt
constexpr std::chrono::seconds kPatience{60};

/// A batch of many small jobs over one input.
class LongBatch {
 public:
  LongBatch() : archive_(model("blocks_12x64")) {
    std::string list;
    for (int i = 0; i < kJobs; ++i)
      list += nlohmann::json{{"id", std::to_string(i)},
                             {"model", archive_.path.string()},
                             {"inputs", archive_.inputs.front().string()},
                             {"output", std::to_string(i) + ".safetensors"}}
                  .dump() +
              "\n";
    write_text(place_ / "jobs.jsonl", list);
  }

  Arguments arguments(const Arguments& options) const {
    Arguments all{"run",
                  "--jobs",
                  (place_ / "jobs.jsonl").string(),
                  "--out",
                  place_.out().string(),
                  "--report",
                  (place_ / "report.json").string()};
    all.insert(all.end(), options.begin(), options.end());
    return all;
  }
  const Workplace& place() const { return place_; }

  /// Waits until some jobs are done.
  bool wait_for_outputs(std::size_t count) const {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (files().size() < count) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return true;
  }

  std::set<std::string> files() const {
    std::set<std::string> names;
    std::error_code none_yet;
    for (const auto& entry : fs::directory_iterator(place_.out(), none_yet))
      names.insert(entry.path().filename().string());
    return names;
  }

 private:
  Workplace place_;
  Archive archive_;
};

}  // namespace

TEST_CASE("an interrupted batch exits 130, keeps whole results and reports the jobs it finished") {
  for (const Arguments& options : {Arguments{"--device", "cpu"}, Arguments{"--device", "sim"},
                                   Arguments{"--device", "sim", "--wave", "4"}}) {
    CAPTURE(options.back());
    const LongBatch batch;
    RunningProgram program(batch.arguments(options), batch.place() / "cache");
    REQUIRE(batch.wait_for_outputs(5));
    program.signal(SIGINT);
    const Outcome outcome = program.wait();
    INFO(lines(outcome.err).back());
    CHECK(outcome.code == 130);

    const auto report = read_json(batch.place() / "report.json");
    std::set<std::string> finished;
    for (const auto& job : report.at("jobs")) {
      CHECK(job.at("status") == "ok");
      finished.insert(job.at("id").get<std::string>() + ".safetensors");
    }
    CHECK(finished.size() >= 5);
    CHECK(finished.size() < kJobs);
    CHECK(batch.files() == finished);  // nothing half done, no temporaries
    const std::string first = read_text(batch.place().out() / "0.safetensors");
    for (const std::string& name : finished) {
      const bool whole = read_text(batch.place().out() / name) == first;
      CHECK(whole);
    }
  }
}

TEST_CASE("a second interrupt ends the program at once, and the next run clears what it left") {
  const LongBatch batch;
  RunningProgram program(batch.arguments({"--device", "cpu"}), batch.place() / "cache");
  REQUIRE(batch.wait_for_outputs(3));
  program.signal(SIGINT);
  program.signal(SIGINT);
  CHECK(program.wait().code == 130);

  const Archive archive = model("blocks_12x64");
  CHECK(batch.place().run(archive.path, {archive.inputs.front()}, {"--device", "cpu"}).outcome.code == 0);
  for (const std::string& name : batch.files()) {
    CAPTURE(name);
    CHECK(name.ends_with(".safetensors"));
    CHECK_FALSE(name.starts_with("."));
  }
}

TEST_CASE("a batch that waits for jobs on standard input ends with the input") {
  const Workplace place;
  const Archive archive = model("ocr_cls");
  const std::string line = nlohmann::json{
      {"id", "a"},
      {"model", archive.path.string()},
      {"inputs", archive.inputs.front().string()},
      {"output",
       "a.safetensors"}}.dump();
  const Outcome outcome = place.lowtide(
      {"run", "--jobs", "-", "--out", place.out().string(), "--device", "cpu"}, line);  // no newline
  CHECK(outcome.code == 0);
  CHECK(fs::exists(place.out() / "a.safetensors"));
}
