// Time per run of lowtide on the cpu against PyTorch's own nativert, on the same archive and input, in turns:
//
//   bench_vs_nativert MODEL.pt2 [INPUT.safetensors] [--runs N] [--threads N] [--csv]
//
// INPUT defaults to MODEL.in.safetensors beside the archive; lowtide's outputs are then also compared with
// those of eager PyTorch in MODEL.out.safetensors. Exit code 1 if they are further from them than rounding
// explains. How far nativert is from lowtide is printed, but does not change the exit code: where the two
// disagree, the file tells who is right.
// --csv prints a line for every run (milliseconds, difference), for scripts that let others take part in the
// turns.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <c10/core/InferenceMode.h>
#include <torch/nativert/ModelRunnerHandle.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lowtide/lowtide.hpp"
#include "session/model_data.hpp"
#include "tensor_file/tensor_file.hpp"

namespace {

/// A resident run on the cpu may take this many times what nativert takes.
constexpr double kRatioLimit = 1.05;
/// Runs of each before the clock counts: first uses of operators, allocator and page cache.
constexpr int kWarmUpRuns = 3;
/// Our outputs may be this far from those of eager PyTorch, relative to the largest value.
constexpr double kDifferenceLimit = 1e-4;

constexpr const char* kUsage =
    "usage: bench_vs_nativert MODEL.pt2 [INPUT.safetensors] [--runs N] [--threads N] [--csv]";

struct Options {
  std::filesystem::path model;
  std::filesystem::path input;
  std::filesystem::path expected;  // empty: nothing to compare with
  int runs = 30;
  int threads = 0;  // 0: lowtide's default
  bool csv = false;
};

int positive(std::string_view text) {
  const int value = std::atoi(std::string(text).c_str());
  if (value <= 0) throw lowtide::UsageError("'" + std::string(text) + "' is no positive number");
  return value;
}

Options parse(const std::vector<std::string_view>& arguments) {
  Options options;
  std::vector<std::filesystem::path> paths;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "--csv") {
      options.csv = true;
    } else if ((argument == "--runs" || argument == "--threads") && i + 1 < arguments.size()) {
      (argument == "--runs" ? options.runs : options.threads) = positive(arguments[++i]);
    } else if (argument.starts_with("-")) {
      throw lowtide::UsageError(kUsage);
    } else {
      paths.emplace_back(argument);
    }
  }
  if (paths.empty() || paths.size() > 2) throw lowtide::UsageError(kUsage);
  options.model = paths[0];
  const auto beside = [&](const char* extension) {
    return std::filesystem::path(options.model).replace_extension(extension);
  };
  options.input = paths.size() == 2 ? paths[1] : beside(".in.safetensors");
  const std::filesystem::path expected = beside(".out.safetensors");
  if (paths.size() == 1 && std::filesystem::exists(expected)) options.expected = expected;
  return options;
}

/// The tensors of a file in the order of `names`. The file names them, or numbers them ("0000").
std::vector<at::Tensor> read_in_order(const std::filesystem::path& file,
                                      const std::vector<std::string>& names) {
  std::vector<at::Tensor> tensors(names.size());
  for (lowtide::tensor_file::NamedTensor& item : lowtide::tensor_file::read_tensors(file)) {
    auto position =
        static_cast<std::size_t>(std::find(names.begin(), names.end(), item.name) - names.begin());
    if (position == names.size())
      std::from_chars(item.name.data(), item.name.data() + item.name.size(), position);
    if (position >= names.size())
      throw lowtide::InputError("'" + file.string() + "': the model has no '" + item.name + "'");
    tensors[position] = std::move(item.tensor);
  }
  return tensors;
}

std::vector<at::Tensor> run_nativert(torch::nativert::ModelRunnerHandle& runner,
                                     const std::vector<at::Tensor>& inputs) {
  std::vector<c10::IValue> values;
  for (const at::Tensor& input : inputs)
    values.emplace_back(input.defined() ? c10::IValue(input) : c10::IValue());
  std::vector<at::Tensor> outputs;
  for (c10::IValue& value : runner.runWithFlatInputsAndOutputs(std::move(values)))
    outputs.push_back(value.isTensor() ? std::move(value).toTensor() : at::Tensor());
  return outputs;
}

/// Largest difference over largest value, over all outputs: 0 if they are equal bit for bit, infinite if they
/// cannot be compared.
double difference(const std::vector<at::Tensor>& ours, const std::vector<at::Tensor>& theirs) {
  constexpr double kIncomparable = std::numeric_limits<double>::infinity();
  if (ours.size() != theirs.size()) return kIncomparable;
  double most = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const at::Tensor& a = ours[i];
    const at::Tensor& b = theirs[i];
    if (!a.defined() && !b.defined()) continue;
    if (!a.defined() || !b.defined() || a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type())
      return kIncomparable;
    if (a.numel() == 0 || a.equal(b)) continue;
    const at::Tensor expected = b.to(at::kDouble);
    const double apart = a.to(at::kDouble).sub(expected).abs().max().item<double>();
    const double scale = expected.abs().max().item<double>();
    most = std::isfinite(apart) && scale > 0 ? std::max(most, apart / scale) : kIncomparable;
  }
  return most;
}

template <class Run>
double milliseconds(Run run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

struct Run {
  double lowtide_ms = 0;
  double nativert_ms = 0;
  double apart = 0;  // difference of the outputs
};

std::string difference_text(double apart) {
  char text[64];
  std::snprintf(text, sizeof text, "differ by %.1e of the largest value", apart);
  return apart == 0 ? "equal, bit for bit" : text;
}

void print(const Options& options, int threads, const std::vector<Run>& runs, std::optional<double> wrong) {
  std::printf("%s: %d threads, %d runs each, in turns\n", options.model.stem().c_str(), threads,
              options.runs);
  const auto line = [&](const char* name, double Run::*field) {
    std::vector<double> values;
    for (const Run& run : runs) values.push_back(run.*field);
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    std::printf("  %-9s %10.3f ms a run (median; %.3f to %.3f)\n", name, median(values), *least, *most);
    return median(values);
  };
  const double ours = line("lowtide", &Run::lowtide_ms);
  const double ratio = ours / line("nativert", &Run::nativert_ms);
  std::printf("  ratio     %10.3f (limit %.2f: %s)\n", ratio, kRatioLimit,
              ratio <= kRatioLimit ? "ok" : "MISSED");
  double apart = 0;
  for (const Run& run : runs) apart = std::max(apart, run.apart);
  std::printf("  outputs of lowtide and nativert: %s\n", difference_text(apart).c_str());
  if (wrong) std::printf("  outputs of lowtide and eager:    %s\n", difference_text(*wrong).c_str());
}

void print_csv(const std::vector<Run>& runs) {
  std::puts("lowtide_ms,nativert_ms,difference");
  for (const Run& run : runs) std::printf("%.6f,%.6f,%.3e\n", run.lowtide_ms, run.nativert_ms, run.apart);
}

int measure(const Options& options) {
  const c10::InferenceMode inference;
  const lowtide::Model model = lowtide::Model::open(options.model.string());
  lowtide::Session session({.device = "cpu", .threads = options.threads});
  const lowtide::ModelHandle handle = session.add(model);
  const std::vector<at::Tensor> inputs = read_in_order(options.input, model.input_names());
  at::set_num_threads(session.threads());  // what nativert goes by
  torch::nativert::ModelRunnerHandle runner(options.model.string(), model.data().program_names().front());

  std::vector<Run> runs;
  std::vector<at::Tensor> ours;
  for (int i = -kWarmUpRuns; i < options.runs; ++i) {
    std::vector<at::Tensor> theirs;
    Run run;
    run.lowtide_ms = milliseconds([&] { ours = session.run(handle, inputs); });
    run.nativert_ms = milliseconds([&] { theirs = run_nativert(runner, inputs); });
    run.apart = difference(ours, theirs);
    if (i >= 0) runs.push_back(run);
  }
  std::optional<double> wrong;
  if (!options.expected.empty())
    wrong = difference(ours, read_in_order(options.expected, model.output_names()));
  options.csv ? print_csv(runs) : print(options, session.threads(), runs, wrong);
  return wrong.value_or(0) <= kDifferenceLimit ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return measure(parse({argv + 1, argv + argc}));
  } catch (const lowtide::UsageError& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_vs_nativert: error: %s\n", e.what());
    return 1;
  }
}
