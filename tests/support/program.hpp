// Runs the built program as a user does and reads what it says.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lowtide::test {

struct Outcome {
  int code = -1;  // exit code; 128 + signal for a crash
  std::string out;
  std::string err;

  /// The last line of stderr.
  std::string last_error() const;
};

/// A folder that removes itself.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

/// `lowtide` at work. Killed where nobody waited for it.
class RunningProgram {
 public:
  /// Starts `lowtide` with these arguments and this text on its standard input. The learned file lies in
  /// `cache`, so that tests do not see each other's.
  RunningProgram(const std::vector<std::string>& arguments, const std::filesystem::path& cache,
                 const std::string& input = "");
  ~RunningProgram();
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  void signal(int number) const;
  Outcome wait();

 private:
  TempFolder streams_;
  pid_t child_ = -1;
};

/// Runs `lowtide` to its end.
Outcome run_lowtide(const std::vector<std::string>& arguments, const std::filesystem::path& cache,
                    const std::string& input = "");

nlohmann::json read_json(const std::filesystem::path& path);
std::string read_text(const std::filesystem::path& path);
void write_text(const std::filesystem::path& path, const std::string& text);

}  // namespace lowtide::test
