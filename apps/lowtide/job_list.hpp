// Scripted batches: one JSON object a line, such as
//   {"id": "p1", "model": "layout", "inputs": {"x": "a.npy"}, "output": "p1.safetensors"}
#pragma once

#include <cstddef>
#include <filesystem>
#include <istream>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>

namespace lowtide::app {

/// A file whose tensors carry the input names, or one file per input name. Relative paths are already joined
/// to the list's folder.
using JobInputs = std::variant<std::filesystem::path, std::map<std::string, std::filesystem::path>>;

struct JobSpec {
  std::string id;
  std::optional<std::string>
      model;  // as written: a name of the configuration, or a path relative to the list's folder
  JobInputs inputs;
  std::filesystem::path output;  // relative to the output folder, normalised, inside it

  bool operator==(const JobSpec&) const = default;
};

struct JobLine {
  std::size_t line = 0;                    // counted from 1
  std::variant<JobSpec, std::string> job;  // or what is wrong with the line, and what to do
};

/// Reads a list as it comes (a pipe may deliver it slowly). A wrong line is reported as such and does not end
/// the list. Not thread-safe.
class JobLineReader {
 public:
  /// `folder`: what paths in the list are relative to. `needs_model`: the command line names none, so each
  /// line must. The stream must outlive the reader.
  JobLineReader(std::istream& stream, std::filesystem::path folder, bool needs_model);

  /// The next line that is not blank; nothing at the end.
  std::optional<JobLine> next();

 private:
  enum class Line { end, complete, too_long };
  Line read_line();
  std::variant<JobSpec, std::string> parse() const;

  std::istream& stream_;
  std::filesystem::path folder_;
  bool needs_model_;
  std::size_t line_ = 0;
  std::string text_;
};

/// Notices jobs that would write the same file or go by the same id.
class OutputClaims {
 public:
  /// Nothing when both were free (and are now taken); else what is wrong, naming the earlier line.
  std::optional<std::string> claim(const JobSpec& job, std::size_t line);

 private:
  std::unordered_map<std::string, std::size_t> outputs_;
  std::unordered_map<std::string, std::size_t> ids_;
};

}  // namespace lowtide::app
