// What the user asked for, parsed and checked. CLI11 is used here only.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lowtide/options.hpp"

namespace lowtide::app {

/// Options that several commands share.
struct CommonOptions {
  SessionOptions session;
  std::string program;  // of several in one archive
  std::vector<ShapeBuckets> shape_buckets;
  std::optional<std::filesystem::path> report;
  bool quiet = false;
  bool verbose = false;
};

struct RunCommand {
  CommonOptions common;
  std::string model;  // may be empty with --jobs
  std::vector<std::filesystem::path> inputs;
  std::string jobs;  // path of a job list, "-" for standard input; empty without --jobs
  std::filesystem::path out;
};

/// NAME=1x3x640x640
struct ShapeOption {
  std::string name;
  std::vector<std::int64_t> sizes;
};

struct PlanCommand {
  CommonOptions common;
  std::string model;
  std::vector<ShapeOption> shapes;
  std::optional<std::filesystem::path> svg;
};

struct InspectCommand {
  CommonOptions common;
  std::string model;
};

struct MeasureCommand {
  CommonOptions common;
  std::string model;
  std::optional<std::filesystem::path> input;
  int runs = 20;
  std::optional<SessionOptions> against;  // a second setting to measure beside
  std::string against_setting;
};

struct DoctorCommand {};

/// --help, --version or a wrong command line: what to print and how to exit.
struct PrintAndExit {
  std::string text;
  int code = 0;
};

using Command =
    std::variant<RunCommand, PlanCommand, InspectCommand, MeasureCommand, DoctorCommand, PrintAndExit>;

/// Throws UsageError for sizes and devices that cannot be read; wrong options come back as PrintAndExit with
/// code 2.
Command parse_command_line(int argc, const char* const* argv);

}  // namespace lowtide::app
