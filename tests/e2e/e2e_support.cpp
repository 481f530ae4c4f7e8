#include "e2e/e2e_support.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

namespace lowtide::test {

namespace fs = std::filesystem;

namespace {

/// Largest |a - b|; infinite where one is NaN and the other is not.
double largest_distance(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.to(at::kDouble).contiguous();
  const at::Tensor y = b.to(at::kDouble).contiguous();
  const double* p = x.const_data_ptr<double>();
  const double* q = y.const_data_ptr<double>();
  double largest = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    if (p[i] == q[i] || (std::isnan(p[i]) && std::isnan(q[i]))) continue;
    const double distance = std::abs(p[i] - q[i]);
    largest = std::max(largest, std::isnan(distance) ? INFINITY : distance);
  }
  return largest;
}

double largest_value(const at::Tensor& tensor) {
  const at::Tensor x = tensor.to(at::kDouble).contiguous();
  double largest = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double value = std::abs(x.const_data_ptr<double>()[i]);
    if (std::isfinite(value)) largest = std::max(largest, value);
  }
  return largest;
}

std::map<std::string, at::Tensor> tensors_of(const fs::path& file) {
  std::map<std::string, at::Tensor> tensors;
  for (const tensor_file::NamedTensor& item : tensor_file::read_tensors(file))
    tensors.emplace(item.name, item.tensor);
  return tensors;
}

std::string four_digits(std::size_t position) {
  std::string text = std::to_string(position);
  return std::string(text.size() < 4 ? 4 - text.size() : 0, '0') + text;
}

}  // namespace

Outcome Workplace::lowtide(const Arguments& arguments, const std::string& input) const {
  return run_lowtide(arguments, folder_ / "cache", input);
}

Reported Workplace::reported(Arguments arguments, const std::string& input) const {
  const fs::path file = folder_ / "report.json";
  fs::remove(file);
  arguments.insert(arguments.end(), {"--report", file.string()});
  Reported result{.outcome = lowtide(arguments, input), .report = nullptr};
  if (fs::exists(file)) result.report = read_json(file);
  return result;
}

Reported Workplace::run(const fs::path& model, const std::vector<fs::path>& inputs,
                        const Arguments& options) const {
  Arguments arguments{"run", model.string()};
  for (const fs::path& path : inputs) arguments.push_back(path.string());
  arguments.insert(arguments.end(), {"--out", out().string()});
  arguments.insert(arguments.end(), options.begin(), options.end());
  return reported(std::move(arguments));
}

Reported Workplace::plan(const fs::path& model, const Arguments& options) const {
  Arguments arguments{"plan", model.string()};
  arguments.insert(arguments.end(), options.begin(), options.end());
  return reported(std::move(arguments));
}

fs::path Workplace::input(const std::string& name,
                          const std::vector<tensor_file::NamedTensor>& tensors) const {
  const fs::path path = folder_ / name;
  fs::create_directories(path.parent_path());
  tensor_file::write_safetensors(path, tensors);
  return path;
}

Archive model(const std::string& name) {
  for (const Archive& archive : find_archives(LOWTIDE_MODELS))
    if (archive.name == name) return archive;
  FAIL("no archive '" << name << "' in " << LOWTIDE_MODELS << ": run tools/get_models --set fast");
  return {};
}

std::uint64_t tensor_bytes(std::span<const fs::path> files) {
  std::uint64_t bytes = 0;
  for (const fs::path& file : files)
    for (const tensor_file::NamedTensor& item : tensor_file::read_tensors(file))
      bytes += item.tensor.nbytes();
  return bytes;
}

std::string difference(const fs::path& output, const fs::path& expected, double tolerance) {
  const std::map<std::string, at::Tensor> got = tensors_of(output), wanted = tensors_of(expected);
  const auto names = nlohmann::json::parse(tensor_file::read_metadata(output).at("names"));
  const std::string count = tensor_file::read_metadata(expected).at("count");
  if (std::to_string(names.size()) != count)
    return std::to_string(names.size()) + " outputs, expected " + count;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto name = names[i].get<std::string>();
    const auto a = got.find(name), b = wanted.find(four_digits(i));
    if ((a == got.end()) != (b == wanted.end())) return "output '" + name + "' is None on one side only";
    if (a == got.end()) continue;
    if (a->second.sizes() != b->second.sizes()) return "output '" + name + "' has another shape";
    if (a->second.scalar_type() != b->second.scalar_type()) return "output '" + name + "' has another dtype";
    const double distance = largest_distance(a->second, b->second);
    if (distance > tolerance * std::max(1.0, largest_value(b->second)))
      return "output '" + name + "' differs by " + std::to_string(distance);
  }
  return "";
}

void check_baseline(const Reported& run) {
  const auto baseline = run.measured().at("context_bytes").get<std::uint64_t>() +
                        run.measured().at("kept_bytes").get<std::uint64_t>();
  for (const auto& job : run.jobs()) {
    CAPTURE(job.dump());
    CHECK(job.at("status") == "ok");
    CHECK(job.at("used_after_bytes") == baseline);
  }
}

void check_refused(const Outcome& outcome, int code, const std::vector<std::string>& parts) {
  CAPTURE(outcome.err);
  CHECK(outcome.code == code);
  CHECK(outcome.out == "");
  CHECK(lines(outcome.err).size() == 1);
  CHECK(outcome.err.starts_with("lowtide: error: "));
  for (const std::string& part : parts) {
    CAPTURE(part);
    CHECK(outcome.err.find(part) != std::string::npos);
  }
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> result;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) result.push_back(line);
  return result;
}

}  // namespace lowtide::test
