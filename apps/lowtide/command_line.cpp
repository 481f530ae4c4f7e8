#include "lowtide/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iomanip>
#include <sstream>

#include "device/device.hpp"
#include "lowtide/bucket_option.hpp"
#include "lowtide/error.hpp"
#include "tensor_file/file_error.hpp"

namespace lowtide::app {
namespace {

constexpr int kLargestWave = 4096;

/// Options as text, before they are checked.
struct RawOptions {
  std::string device;
  std::string vram_cap;
  std::string ram_cap;
  std::string after_job = "keep";
  std::string wave;
  std::string pattern = "on";
  std::string arena = "same-as-requested";
  std::string svg;
  std::vector<std::string> shapes;
  std::vector<std::string> shape_buckets;
};

/// Where measured peaks are remembered: the user's cache folder.
std::string learned_file() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0')
    return std::string(cache) + "/lowtide/learned.json";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0')
    return std::string(home) + "/.cache/lowtide/learned.json";
  return {};
}

std::int64_t parse_size(const std::string& text, const std::string& option) {
  std::int64_t value = -1;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || value < 0)
    throw UsageError("--shape " + option + ": write NAME=1x3x640x640, or NAME=scalar for a single value");
  return value;
}

ShapeOption parse_shape(const std::string& option) {
  const std::size_t equals = option.rfind('=');
  if (equals == std::string::npos || equals == 0) parse_size("", option);
  ShapeOption shape{.name = option.substr(0, equals), .sizes = {}};
  const std::string sizes = option.substr(equals + 1);
  if (sizes == "scalar") return shape;
  for (std::size_t begin = 0; begin <= sizes.size();) {
    const std::size_t end = std::min(sizes.find('x', begin), sizes.size());
    shape.sizes.push_back(parse_size(sizes.substr(begin, end - begin), option));
    begin = end + 1;
  }
  return shape;
}

/// 0 for "auto".
int parse_wave(const std::string& text) {
  if (text == "auto") return 0;
  int jobs = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), jobs);
  if (status != std::errc() || end != text.data() + text.size() || jobs < 1 || jobs > kLargestWave)
    throw UsageError("--wave '" + text + "': give a number of jobs from 1 to " +
                     std::to_string(kLargestWave) + ", or auto");
  return jobs;
}

/// Not every command has every option.
bool is_given(const CLI::App& command, const std::string& option) {
  const CLI::Option* found = command.get_option_no_throw(option);
  return found != nullptr && found->count() > 0;
}

void add_device_options(CLI::App& command, RawOptions& raw, CommonOptions& common) {
  command
      .add_option("--device", raw.device,
                  "cpu, cuda, cuda:N, sim or sim:CARD (a card's name, file, or size such as sim:6GiB)")
      ->group("Device and memory");
  command
      .add_option("--vram-cap", raw.vram_cap,
                  "limit for all device memory, context included: 2GiB, 512MiB, bytes")
      ->group("Device and memory");
  command
      .add_option(
          "--ram-cap", raw.ram_cap,
          "limit for host memory beyond the program's start; weights that do not fit are read from the "
          "archive in every pass")
      ->group("Device and memory");
  command
      .add_flag("--low-vram", common.session.low_vram,
                "pick a low cap and give everything back after each job")
      ->group("Device and memory");
  command.add_option("--after-job", raw.after_job, "keep (weights that fit stay, the default) or release")
      ->check(CLI::IsMember({"keep", "release"}))
      ->group("Device and memory");
  command
      .add_option("--threads", common.session.threads, "threads of the operators (default: physical cores)")
      ->check(CLI::Range(1, 4096))
      ->group("Device and memory");
}

void add_planner_options(CLI::App& command, RawOptions& raw, CommonOptions& common) {
  command
      .add_option("--wave", raw.wave,
                  "jobs that share each copy of the weights: a number, or auto (default 1)")
      ->group("Device and memory");
  command
      .add_flag("--allow-split", common.session.allow_split,
                "cut weights that are larger than the cap allows; last bits may differ")
      ->group("Device and memory");
}

void add_arena_options(CLI::App& command, RawOptions& raw) {
  command
      .add_option("--pattern", raw.pattern,
                  "on (activations of known shapes have planned places, the default) or off: one by one")
      ->check(CLI::IsMember({"on", "off"}))
      ->group("Device and memory");
  command
      .add_option("--arena", raw.arena,
                  "how memory without a planned place grows: same-as-requested (the default) or "
                  "next-power-of-two")
      ->check(CLI::IsMember({"next-power-of-two", "same-as-requested"}))
      ->group("Device and memory");
}

void add_bucket_option(CLI::App& command, RawOptions& raw) {
  command
      .add_option(
          "--shape-buckets", raw.shape_buckets,
          "NAME.DIM=1,4,8,16: pad this dimension of an input to the next of these sizes, and cut the results "
          "back; a batch, or with :pad=VALUE any that may be padded. Once per dimension")
      ->allow_extra_args(false)
      ->group("Model");
}

void add_model_options(CLI::App& command, CommonOptions& common) {
  command.add_option("--program", common.program, "which program of the archive, if there are several")
      ->group("Model");
}

void add_report_options(CLI::App& command, CommonOptions& common) {
  command.add_option("--report", common.report, "write a JSON report to this file")->group("Output");
  command.add_flag("--quiet", common.quiet, "print errors only")->group("Output");
  command.add_flag("--verbose", common.verbose, "print more")->group("Output");
}

/// From text to options. Where the user named no device: the GPU if there is one, else `without_gpu`.
void finish(CommonOptions& common, const RawOptions& raw, const CLI::App& command, const char* without_gpu) {
  common.session.device = !raw.device.empty() ? raw.device : device::cuda_available() ? "cuda" : without_gpu;
  if (!raw.vram_cap.empty()) common.session.vram_cap = parse_bytes(raw.vram_cap);
  if (!raw.ram_cap.empty()) common.session.ram_cap = parse_bytes(raw.ram_cap);
  common.session.after_job = raw.after_job == "release" ? AfterJob::release : AfterJob::keep;
  common.session.learned_file = learned_file();
  for (const std::string& text : raw.shape_buckets) common.shape_buckets.push_back(parse_shape_buckets(text));
  if (is_given(command, "--wave")) common.session.wave = parse_wave(raw.wave);
  for (const std::string option : {"--after-job", "--wave", "--allow-split", "--svg"}) {
    if (is_given(command, option) && common.session.device == "cpu")
      throw UsageError(option +
                       " has no effect on the cpu, where nothing is moved: choose --device sim or cuda");
  }
  common.session.pattern = raw.pattern == "on";
  common.session.arena =
      raw.arena == "next-power-of-two" ? ArenaGrowth::next_power_of_two : ArenaGrowth::same_as_requested;
  for (const std::string option : {"--pattern", "--arena"}) {
    if (!is_given(command, option) || common.session.device.starts_with("sim")) continue;
    const bool cpu = common.session.device == "cpu";
    throw UsageError(option + " has no effect on " + (cpu ? "the cpu" : common.session.device) +
                     ", where LibTorch's allocator chooses the places: leave it out");
  }
  if (is_given(command, "--after-job") && common.session.low_vram && raw.after_job == "keep")
    throw UsageError("--after-job keep contradicts --low-vram, which gives everything back: leave one out");
}

PrintAndExit wrong_usage(const std::string& message) {
  return {"lowtide: error: " + message + "; see lowtide --help\n", 2};
}

/// CLI11 answers an unknown command with "A subcommand is required". Empty where the word is a command.
std::string unknown_command(const CLI::App& app, const std::vector<std::string>& arguments) {
  const auto word = std::find_if(arguments.begin(), arguments.end(),
                                 [](const std::string& argument) { return !argument.starts_with('-'); });
  if (word == arguments.end()) return {};
  std::string commands;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == *word) return {};
    commands += (commands.empty() ? "" : ", ") + command->get_name();
  }
  return "there is no command '" + tensor_file::printable(*word) + "', only " + commands;
}

/// Splits at blanks; a word in double quotes may hold some.
std::vector<std::string> split_words(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream in(text);
  for (std::string word; in >> std::quoted(word);) words.push_back(word);
  return words;
}

std::string join_words(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

bool same_settings(const SessionOptions& a, const SessionOptions& b) {
  return a.device == b.device && a.vram_cap == b.vram_cap && a.ram_cap == b.ram_cap &&
         a.low_vram == b.low_vram && a.after_job == b.after_job && a.pattern == b.pattern &&
         a.arena == b.arena && a.threads == b.threads;
}

/// Whether of an option that is given twice the later one counts.
enum class Repeated { refused, last_counts };

Command parse(const std::vector<std::string>& arguments, Repeated repeated);

/// The second setting of measure: the options of the first with those of --against behind them.
Command add_against(MeasureCommand measure, const std::vector<std::string>& arguments,
                    const std::string& against) {
  std::vector<std::string> second;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--against") {
      ++i;
    } else if (!arguments[i].starts_with("--against=")) {
      second.push_back(arguments[i]);
    }
  }
  const std::vector<std::string> words = split_words(against);
  second.insert(second.end(), words.begin(), words.end());
  Command command = DoctorCommand{};
  try {
    command = parse(second, Repeated::last_counts);
  } catch (const UsageError& e) {
    throw UsageError(std::string("in --against: ") + e.what());
  }
  if (auto* wrong = std::get_if<PrintAndExit>(&command)) {
    if (wrong->code == 0) return wrong_usage("--against takes options of device and memory, not " + against);
    wrong->text.insert(std::string_view("lowtide: error: ").size(), "in --against: ");
    return command;
  }
  const auto& other = std::get<MeasureCommand>(command);
  if (other.model != measure.model || other.input != measure.input || other.runs != measure.runs ||
      other.common.report != measure.common.report || other.common.program != measure.common.program ||
      other.common.quiet != measure.common.quiet || other.common.verbose != measure.common.verbose)
    return wrong_usage("--against takes options of device and memory only");
  if (same_settings(other.common.session, measure.common.session))
    return wrong_usage("--against '" + tensor_file::printable(against) + "' changes nothing: leave it out");
  measure.against = other.common.session;
  measure.against_setting = join_words(words);
  return measure;
}

Command parse(const std::vector<std::string>& arguments, Repeated repeated) {
  CLI::App app(
      "lowtide runs PyTorch models that do not fit the graphics card.\n"
      "Exit codes: 0 ok, 1 inputs failed, 2 wrong usage, 3 cannot fit, 4 bad archive, 5 device, 130 "
      "interrupted.",
      "lowtide");
  app.set_version_flag("--version", std::string("lowtide ") + LOWTIDE_VERSION);
  app.require_subcommand(1);

  RunCommand run;
  PlanCommand plan;
  InspectCommand inspect;
  MeasureCommand measure;
  std::string against;
  RawOptions raw;
  std::vector<std::string> positionals;

  CLI::App* run_app = app.add_subcommand("run", "one model over many inputs, or a list of jobs");
  run_app->add_option("model_and_inputs", positionals,
                      "MODEL.pt2 INPUT... (files or folders); with --jobs at most a model");
  run_app->add_option("--out", run.out, "folder for the results")->required();
  run_app->add_option("--jobs", run.jobs, "JSON job list, one job a line; - for standard input");
  add_device_options(*run_app, raw, run.common);
  add_planner_options(*run_app, raw, run.common);
  add_arena_options(*run_app, raw);
  add_model_options(*run_app, run.common);
  add_bucket_option(*run_app, raw);
  add_report_options(*run_app, run.common);

  CLI::App* plan_app =
      app.add_subcommand("plan", "the plan, the proof and the time/VRAM curve; touches no device");
  plan_app->add_option("model", plan.model, "MODEL.pt2")->required();
  plan_app->add_option("--shape", raw.shapes,
                       "NAME=1x3x640x640, once per input (default: the archive's sample shapes)");
  add_device_options(*plan_app, raw, plan.common);
  add_planner_options(*plan_app, raw, plan.common);
  add_model_options(*plan_app, plan.common);
  add_bucket_option(*plan_app, raw);
  add_report_options(*plan_app, plan.common);
  plan_app->add_option("--svg", raw.svg, "draw the time/VRAM curve into this file")->group("Output");

  CLI::App* inspect_app = app.add_subcommand("inspect", "inputs, outputs, weights, operators, state, guards");
  inspect_app->add_option("model", inspect.model, "MODEL.pt2")->required();
  add_model_options(*inspect_app, inspect.common);
  inspect_app->add_flag("--verbose", inspect.common.verbose, "print the whole graph");

  CLI::App* measure_app = app.add_subcommand("measure", "50 warm-up runs, then N: stable peak, slope, time");
  measure_app->add_option("model", measure.model, "MODEL.pt2")->required();
  measure_app->add_option("input", measure.input, "one input file (default: the archive's sample shapes)");
  measure_app->add_option("--runs", measure.runs, "measured runs")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  measure_app->add_option(
      "--against", against,
      "measure again with these options and print both: --against \"--after-job release\"");
  add_device_options(*measure_app, raw, measure.common);
  add_arena_options(*measure_app, raw);
  add_model_options(*measure_app, measure.common);
  add_report_options(*measure_app, measure.common);
  if (repeated == Repeated::last_counts) {
    for (CLI::Option* option : measure_app->get_options()) option->take_last();
  }

  CLI::App* doctor_app = app.add_subcommand("doctor", "devices, memory, limits, and what cap is sensible");

  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // as CLI11 wants them
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    const auto chosen = app.get_subcommands();
    return PrintAndExit{(chosen.empty() ? &app : chosen.front())->help(), 0};
  } catch (const CLI::CallForVersion& e) {
    return PrintAndExit{std::string(e.what()) + "\n", 0};
  } catch (const CLI::ParseError& e) {
    const std::string unknown = unknown_command(app, arguments);
    return wrong_usage(unknown.empty() ? e.what() : unknown);
  }

  if (run_app->parsed()) {
    finish(run.common, raw, *run_app, "cpu");
    if (!positionals.empty()) run.model = positionals.front();
    for (std::size_t i = 1; i < positionals.size(); ++i) run.inputs.emplace_back(positionals[i]);
    if (run.jobs.empty() && run.inputs.empty())
      return wrong_usage("run needs MODEL.pt2 and at least one INPUT, or --jobs LIST");
    if (!run.jobs.empty() && !run.inputs.empty())
      return wrong_usage("inputs stand in the job list: leave them out beside --jobs");
    if (run.jobs == "-" && run.common.session.wave != 1)
      return wrong_usage("--wave has no effect with --jobs -, whose jobs run as they come: give a job file");
    return run;
  }
  if (plan_app->parsed()) {
    finish(plan.common, raw, *plan_app, "sim");
    for (const std::string& shape : raw.shapes) plan.shapes.push_back(parse_shape(shape));
    if (!raw.svg.empty()) plan.svg = raw.svg;
    if (plan.svg && plan.svg == plan.common.report)
      return wrong_usage("--svg and --report name the same file '" + raw.svg + "'");
    return plan;
  }
  if (inspect_app->parsed()) return inspect;
  if (measure_app->parsed()) {
    finish(measure.common, raw, *measure_app, "cpu");
    if (measure_app->count("--against") == 0) return measure;
    return add_against(std::move(measure), arguments, against);
  }
  (void)doctor_app;
  return DoctorCommand{};
}

}  // namespace

Command parse_command_line(int argc, const char* const* argv) {
  return parse({argv + std::min(argc, 1), argv + argc}, Repeated::refused);
}

}  // namespace lowtide::app
