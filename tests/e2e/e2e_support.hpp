// What the end-to-end tests share: runs with their reports, inputs made on the spot, outputs compared.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "support/archives.hpp"
#include "support/program.hpp"
#include "tensor_file/tensor_file.hpp"

namespace lowtide::test {

using Arguments = std::vector<std::string>;

/// A run and the report that it wrote; null where it wrote none.
struct Reported {
  Outcome outcome;
  nlohmann::json report;

  const nlohmann::json& plan() const { return report.at("plan"); }
  const nlohmann::json& measured() const { return report.at("measured"); }
  const nlohmann::json& jobs() const { return report.at("jobs"); }
};

/// A folder for inputs, outputs and reports of a series of runs, with a learned file of its own.
class Workplace {
 public:
  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }
  std::filesystem::path out() const { return folder_ / "out"; }

  /// `lowtide` with these arguments alone.
  Outcome lowtide(const Arguments& arguments, const std::string& input = "") const;
  /// `lowtide ARGUMENTS --report FILE`.
  Reported reported(Arguments arguments, const std::string& input = "") const;
  /// `lowtide run MODEL INPUTS --out OUT --report FILE OPTIONS`.
  Reported run(const std::filesystem::path& model, const std::vector<std::filesystem::path>& inputs,
               const Arguments& options) const;
  /// `lowtide plan MODEL --report FILE OPTIONS`.
  Reported plan(const std::filesystem::path& model, const Arguments& options = {}) const;

  /// A .safetensors file of these tensors.
  std::filesystem::path input(const std::string& name,
                              const std::vector<tensor_file::NamedTensor>& tensors) const;

 private:
  TempFolder folder_;
};

/// The archive of this name made by tools/get_models; ends the test case where there is none.
Archive model(const std::string& name);

/// Size of all tensors in the files.
std::uint64_t tensor_bytes(std::span<const std::filesystem::path> files);

/// "" where the outputs of a run equal those that PyTorch computed, within `tolerance` of max(1, max
/// |expected|); else the first difference, in words.
std::string difference(const std::filesystem::path& output, const std::filesystem::path& expected,
                       double tolerance);

/// Checks that every job that ran left the context and what is kept, and nothing else, on the device.
void check_baseline(const Reported& run);

/// Checks that a whole run was refused: this exit code, nothing on stdout, and one line of stderr that holds
/// `parts`.
void check_refused(const Outcome& outcome, int code, const std::vector<std::string>& parts);

std::vector<std::string> lines(const std::string& text);

}  // namespace lowtide::test
