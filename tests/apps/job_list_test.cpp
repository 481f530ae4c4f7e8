#include "lowtide/job_list.hpp"

#include <doctest/doctest.h>

#include <sstream>
#include <vector>

#include "../tensor_file/temp_dir.hpp"

using namespace lowtide;
using namespace lowtide::app;
using lowtide::test::contains;

namespace {

std::vector<JobLine> read(const std::string& text, bool needs_model = false) {
  std::istringstream stream(text);
  JobLineReader reader(stream, "jobs", needs_model);
  std::vector<JobLine> lines;
  while (auto line = reader.next()) lines.push_back(std::move(*line));
  return lines;
}

std::string error_of(const std::string& text, bool needs_model = false) {
  const auto lines = read(text, needs_model);
  REQUIRE(lines.size() == 1);
  const auto* error = std::get_if<std::string>(&lines[0].job);
  if (error != nullptr) CHECK_FALSE(contains(*error, "\n"));
  return error == nullptr ? std::string() : *error;
}

const std::string kGood = R"({"id":"p","inputs":"a.npy","output":"o"})";

}  // namespace

TEST_CASE("a job names one input file or one per input, relative to the list; the output stays relative") {
  const auto lines =
      read(R"({"id": "p1", "model": "layout", "inputs": "a.safetensors", "output": "x/./p1.safetensors"})"
           "\r\n\n  \n"
           R"({"id": "p2", "inputs": {"x": "a.npy", "y": "/data/b.npy"}, "output": "p2"})");
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].line == 1);
  CHECK(
      (std::get<JobSpec>(lines[0].job) == JobSpec{"p1", "layout", "jobs/a.safetensors", "x/p1.safetensors"}));
  CHECK(lines[1].line == 4);
  const std::map<std::string, std::filesystem::path> files{{"x", "jobs/a.npy"}, {"y", "/data/b.npy"}};
  CHECK((std::get<JobSpec>(lines[1].job) == JobSpec{"p2", std::nullopt, files, "p2"}));
}

TEST_CASE("a wrong line is reported with its number and does not end the list") {
  const auto lines = read(kGood + "\n{oops\n" + kGood);
  REQUIRE(lines.size() == 3);
  CHECK(std::holds_alternative<JobSpec>(lines[0].job));
  CHECK(lines[1].line == 2);
  CHECK(contains(std::get<std::string>(lines[1].job), "no JSON (column 2)"));
  CHECK(std::holds_alternative<JobSpec>(lines[2].job));
}

TEST_CASE("what is wrong with a line is said with what to do") {
  REQUIRE(error_of(kGood).empty());
  CHECK(contains(error_of(kGood, true), "'model' is missing"));
  CHECK(contains(error_of("[]"), "no JSON object"));
  CHECK(contains(error_of("7 8"), "no JSON"));
  CHECK(contains(error_of(R"({"inputs":"a","output":"o"})"), "'id' is missing"));
  CHECK(contains(error_of(R"({"id":"p","output":"o"})"), "'inputs' is missing"));
  CHECK(contains(error_of(R"({"id":"p","inputs":"a"})"), "'output' is missing"));
  CHECK(contains(error_of(R"({"id":1,"inputs":"a","output":"o"})"), "'id' is no text"));
  CHECK(contains(error_of(R"({"id":"","inputs":"a","output":"o"})"), "'id' is empty"));
  CHECK(contains(error_of(R"({"id":"p","inputs":["a"],"output":"o"})"), "'inputs' is neither"));
  CHECK(contains(error_of(R"({"id":"p","inputs":{"x":2},"output":"o"})"), "'inputs.x' is no text"));
  CHECK(contains(error_of(R"({"id":"p","inputs":"a\u0000b","output":"o"})"), "zero byte"));
  CHECK(contains(error_of(R"({"id":"p","inputs":"a","output":"o","prio":1})"), "unknown key 'prio'"));
  CHECK(contains(error_of(R"({"id":"p","id":"q","inputs":"a","output":"o"})"), "'id' is given twice"));
  CHECK(contains(error_of(R"({"id":"p","inputs":{"x":"a","x":"b"},"output":"o"})"), "'x' is given twice"));
  CHECK(contains(error_of(R"({"id":"p","inputs":{"x":{"y":{}}},"output":"o"})"), "nested too deep"));
  CHECK(contains(error_of(R"({"id":"p","inputs":"a","output":"../o"})"), "'output' contains '..'"));
  CHECK(contains(error_of(R"({"id":"p","inputs":"a","output":"/o"})"), "'output' is absolute"));
  CHECK(contains(error_of(std::string(1'000'000, '[')), "nested too deep"));
}

TEST_CASE("a line beyond 16 MiB is refused without being kept, the next one is read") {
  const auto lines = read(std::string(17 * 1024 * 1024, ' ') + "\n" + kGood + "\n");
  REQUIRE(lines.size() == 2);
  CHECK(contains(std::get<std::string>(lines[0].job), "longer than 16 MiB"));
  CHECK(lines[1].line == 2);
  CHECK(std::holds_alternative<JobSpec>(lines[1].job));
}

TEST_CASE("jobs that share an output or an id are noticed, with the line of the first") {
  OutputClaims claims;
  CHECK_FALSE(claims.claim({"a", {}, "x", "a.npy"}, 3));
  CHECK(contains(claims.claim({"b", {}, "x", "a.npy"}, 5).value(),
                 "output 'a.npy' is already written by line 3"));
  CHECK(contains(claims.claim({"a", {}, "x", "b.npy"}, 6).value(), "id 'a' is already used in line 3"));
  CHECK_FALSE(claims.claim({"b", {}, "x", "b.npy"}, 7));
}
