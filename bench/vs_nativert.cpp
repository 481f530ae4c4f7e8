// Time per run of lowtide on the cpu against PyTorch's own nativert, on the same archive and input, in turns:
//
//   bench_vs_nativert MODEL.pt2 [INPUT.safetensors] [--runs N] [--threads N] [--csv]
//
// INPUT defaults to MODEL.in.safetensors beside the archive. Exit code 1 if the outputs differ in a single
// bit.
// --csv prints the time of every run, in milliseconds, for scripts that take part in the turns.
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
/// Outputs may be this far apart, relative to the largest value.
constexpr double kDifferenceLimit = 1e-4;

constexpr const char* kUsage =
    "usage: bench_vs_nativert MODEL.pt2 [INPUT.safetensors] [--runs N] [--threads N] [--csv]";

struct Options {
  std::filesystem::path model;
  std::filesystem::path input;
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
  options.input =
      paths.size() == 2 ? paths[1] : std::filesystem::path(paths[0]).replace_extension(".in.safetensors");
  return options;
}

/// In the order of the model's inputs. The file names them, or numbers them ("0000").
std::vector<at::Tensor> read_inputs(const lowtide::Model& model, const std::filesystem::path& file) {
  const std::vector<std::string>& names = model.input_names();
  std::vector<at::Tensor> inputs(names.size());
  for (lowtide::tensor_file::NamedTensor& item : lowtide::tensor_file::read_tensors(file)) {
    auto position =
        static_cast<std::size_t>(std::find(names.begin(), names.end(), item.name) - names.begin());
    if (position == names.size())
      std::from_chars(item.name.data(), item.name.data() + item.name.size(), position);
    if (position >= names.size())
      throw lowtide::InputError("'" + file.string() + "': the model has no input '" + item.name + "'");
    inputs[position] = std::move(item.tensor);
  }
  return inputs;
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
/// cannot be compared. nativert has kernels of its own for some operators, so equal bits are not to be
/// expected of every model.
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

struct Times {
  std::vector<double> lowtide;  // milliseconds, one per run
  std::vector<double> nativert;
};

void print(const Options& options, int threads, const Times& times, double apart) {
  const auto line = [](const char* name, const std::vector<double>& values) {
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    std::printf("  %-9s %10.3f ms a run (median; %.3f to %.3f)\n", name, median(values), *least, *most);
  };
  std::printf("%s: %d threads, %d runs each, in turns\n", options.model.stem().c_str(), threads,
              options.runs);
  line("lowtide", times.lowtide);
  line("nativert", times.nativert);
  const double ratio = median(times.lowtide) / median(times.nativert);
  std::printf("  ratio     %10.3f (limit %.2f: %s)\n", ratio, kRatioLimit,
              ratio <= kRatioLimit ? "ok" : "MISSED");
  if (apart == 0) {
    std::puts("  outputs   equal, bit for bit");
  } else {
    std::printf("  outputs   differ by %.1e of the largest value (limit %.0e: %s)\n", apart, kDifferenceLimit,
                apart <= kDifferenceLimit ? "ok" : "MISSED");
  }
}

int measure(const Options& options) {
  const c10::InferenceMode inference;
  const lowtide::Model model = lowtide::Model::open(options.model.string());
  lowtide::Session session({.device = "cpu", .threads = options.threads});
  const lowtide::ModelHandle handle = session.add(model);
  const std::vector<at::Tensor> inputs = read_inputs(model, options.input);
  at::set_num_threads(
      session.threads());  // nativert takes what is set, and may come before the session's first run
  torch::nativert::ModelRunnerHandle runner(options.model.string(), model.data().program_names().front());

  double apart = 0;
  for (int i = 0; i < kWarmUpRuns; ++i)
    apart = std::max(apart, difference(session.run(handle, inputs), run_nativert(runner, inputs)));
  Times times;
  for (int i = 0; i < options.runs; ++i) {
    std::vector<at::Tensor> ours;
    std::vector<at::Tensor> theirs;
    times.lowtide.push_back(milliseconds([&] { ours = session.run(handle, inputs); }));
    times.nativert.push_back(milliseconds([&] { theirs = run_nativert(runner, inputs); }));
    apart = std::max(apart, difference(ours, theirs));
  }
  if (options.csv) {
    std::puts("lowtide_ms,nativert_ms");
    for (std::size_t i = 0; i < times.lowtide.size(); ++i)
      std::printf("%.6f,%.6f\n", times.lowtide[i], times.nativert[i]);
  } else {
    print(options, session.threads(), times, apart);
  }
  return apart <= kDifferenceLimit ? 0 : 1;
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
