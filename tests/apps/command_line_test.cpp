#include "lowtide/command_line.hpp"

#include <doctest/doctest.h>

#include "../tensor_file/temp_dir.hpp"
#include "lowtide/error.hpp"

using namespace lowtide;
using namespace lowtide::app;
using namespace lowtide::test;

namespace {

Command parse(std::vector<const char*> words) {
  words.insert(words.begin(), "lowtide");
  return parse_command_line(static_cast<int>(words.size()), words.data());
}

SessionOptions options_of_run(std::vector<const char*> options) {
  options.insert(options.begin(), {"run", "m.pt2", "x.npy", "--out", "out"});
  return std::get<RunCommand>(parse(options)).common.session;
}

/// What is wrong with these words; empty where nothing is.
std::string complaint(const std::vector<const char*>& words) {
  try {
    const Command command = parse(words);
    const auto* end = std::get_if<PrintAndExit>(&command);
    if (end == nullptr) return "";
    CHECK(end->code == 2);
    return end->text;
  } catch (const UsageError& e) {
    return e.what();
  }
}

std::string complaint_of_run(std::vector<const char*> options) {
  options.insert(options.begin(), {"run", "m.pt2", "x.npy", "--out", "out"});
  return complaint(options);
}

}  // namespace

TEST_CASE("waves are one job, a number of jobs, or left to the planner") {
  CHECK(options_of_run({"--device", "sim"}).wave == 1);
  CHECK(options_of_run({"--device", "sim", "--wave", "1"}).wave == 1);
  CHECK(options_of_run({"--device", "sim", "--wave", "4096"}).wave == 4096);
  CHECK(options_of_run({"--device", "sim", "--wave=auto"}).wave == 0);
  const auto plan = std::get<PlanCommand>(parse({"plan", "m.pt2", "--device", "sim", "--wave", "7"}));
  CHECK(plan.common.session.wave == 7);
  for (const char* wave :
       {"0", "-1", "4097", "1.5", "many", "", " 2", "2x", "99999999999999999999", "AUTO"}) {
    CAPTURE(wave);
    const std::string text = complaint_of_run({"--device", "sim", (std::string("--wave=") + wave).c_str()});
    CHECK(contains(text, "--wave"));
    if (*wave != '\0') CHECK(contains(text, "from 1 to 4096, or auto"));
  }
}

TEST_CASE("splitting is off unless it is allowed") {
  CHECK_FALSE(options_of_run({"--device", "sim"}).allow_split);
  CHECK(options_of_run({"--device", "sim", "--allow-split"}).allow_split);
  CHECK(std::get<PlanCommand>(parse({"plan", "m.pt2", "--device", "sim", "--allow-split"}))
            .common.session.allow_split);
}

TEST_CASE("on the cpu there is nothing to share, split or draw") {
  for (const std::vector<const char*>& option : {std::vector<const char*>{"--wave", "1"},
                                                 {"--wave", "4"},
                                                 {"--wave", "auto"},
                                                 {"--allow-split"},
                                                 {"--after-job", "release"}}) {
    CAPTURE(option.front());
    std::vector<const char*> words{"--device", "cpu"};
    words.insert(words.end(), option.begin(), option.end());
    CHECK(contains(complaint_of_run(words), option.front() + std::string(" has no effect on the cpu")));
  }
  CHECK(contains(complaint({"plan", "m.pt2", "--device", "cpu", "--svg", "x.svg"}), "--svg has no effect"));
}

TEST_CASE("jobs of a stream run as they come, so waves have no effect there") {
  const auto stream = [](const char* wave) {
    return complaint({"run", "--jobs", "-", "--out", "out", "--device", "sim", "--wave", wave});
  };
  CHECK(contains(stream("2"), "--wave has no effect with --jobs -"));
  CHECK(contains(stream("auto"), "--wave has no effect with --jobs -"));
  CHECK(stream("1") == "");
  CHECK(complaint({"run", "--jobs", "list", "--out", "out", "--device", "sim", "--wave", "2"}) == "");
}

TEST_CASE("commands that do not plan batches do not take the planner's options") {
  for (const char* command : {"measure", "inspect"}) {
    CAPTURE(command);
    CHECK(contains(complaint({command, "m.pt2", "--wave", "2"}), "--wave"));
    CHECK(contains(complaint({command, "m.pt2", "--allow-split"}), "--allow-split"));
  }
  CHECK(contains(complaint({"doctor", "--wave", "2"}), "--wave"));
  CHECK(contains(complaint_of_run({"--device", "sim", "--svg", "x.svg"}), "--svg"));
}

TEST_CASE("the picture is a file of its own") {
  const auto plan = std::get<PlanCommand>(parse({"plan", "m.pt2", "--device", "sim", "--svg", "x.svg"}));
  CHECK(plan.svg == "x.svg");
  CHECK_FALSE(std::get<PlanCommand>(parse({"plan", "m.pt2", "--device", "sim"})).svg);
  CHECK(
      contains(complaint({"plan", "m.pt2", "--device", "sim", "--svg", "x", "--report", "x"}), "same file"));
}

TEST_CASE("an unknown command is named, with the commands that there are") {
  const std::string text = complaint({"frob", "m.pt2"});
  CHECK(contains(text, "no command 'frob'"));
  CHECK(contains(text, "run, plan, inspect, measure, doctor"));
  CHECK(contains(complaint({"--strange", "frob"}), "'frob'"));
  CHECK(std::count(text.begin(), text.end(), '\n') == 1);
  const std::string hostile = complaint({"a\nb\x1b"});
  CHECK(std::count(hostile.begin(), hostile.end(), '\n') == 1);
  CHECK(contains(complaint({}), "subcommand"));
  CHECK(contains(complaint_of_run({"--frobnicate"}), "--frobnicate"));
}

TEST_CASE("buckets name an input, a dimension and its sizes, and may say what to pad with") {
  const auto buckets = [](std::vector<const char*> options) {
    options.insert(options.begin(), {"run", "m.pt2", "x.npy", "--out", "out"});
    return std::get<RunCommand>(parse(options)).common.shape_buckets;
  };
  CHECK(buckets({}).empty());
  const auto one = buckets({"--shape-buckets", "ids.0=1,4,8,16"});
  REQUIRE(one.size() == 1);
  CHECK(one[0].input == "ids");
  CHECK(one[0].dim == 0);
  CHECK(one[0].sizes == std::vector<std::int64_t>{1, 4, 8, 16});
  CHECK_FALSE(one[0].pad.has_value());
  const auto two = buckets({"--shape-buckets", "ids.1=64:pad=-1.5", "--shape-buckets=d['a.b=c'].12=3"});
  REQUIRE(two.size() == 2);
  CHECK(two[0].pad == -1.5);
  CHECK(two[0].sizes == std::vector<std::int64_t>{64});
  CHECK(two[1].input == "d['a.b=c']");
  CHECK(two[1].dim == 12);
  const Command plan = parse({"plan", "--shape-buckets", "x.0=2", "m.pt2"});  // takes one word, not the model
  CHECK(std::get<PlanCommand>(plan).model == "m.pt2");
  CHECK(std::get<PlanCommand>(plan).common.shape_buckets.size() == 1);
  for (const char* wrong : {"ids", "ids=1", "ids.0", "ids.0=", "ids.=1", ".0=1", "ids.-1=1", "ids.x=1",
                            "ids.0=1,", "ids.0=1,,2", "ids.0=1;2", "ids.0=99999999999999999999",
                            "ids.0=1:pad=", "ids.0=1:pad=x", "ids.0= 1", "ids.0=1:fill=0"}) {
    CAPTURE(wrong);
    const std::string text = complaint_of_run({"--shape-buckets", wrong});
    CHECK(text.find("--shape-buckets") != std::string::npos);
    CHECK(text.find('\n') == std::string::npos);
  }
  CHECK(complaint({"measure", "m.pt2", "--shape-buckets", "ids.0=1"}) != "");
}
