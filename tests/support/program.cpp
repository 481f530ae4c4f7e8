#include "support/program.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace lowtide::test {

TempFolder::TempFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "lowtide-test-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make a temporary folder");
  path_ = name;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string Outcome::last_error() const {
  std::string text = err;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const std::size_t begin = text.rfind('\n');
  return begin == std::string::npos ? text : text.substr(begin + 1);
}

namespace {

/// In the child: standard streams to files, then the program.
[[noreturn]] void exec_program(std::vector<char*> argv, const std::filesystem::path& cache,
                               const TempFolder& folder) {
  const auto redirect = [](int fd, const std::string& path, int flags) {
    const int file = ::open(path.c_str(), flags, 0600);
    if (file < 0 || ::dup2(file, fd) < 0) ::_exit(126);
  };
  redirect(0, folder / "in", O_RDONLY);
  redirect(1, folder / "out", O_WRONLY | O_CREAT | O_TRUNC);
  redirect(2, folder / "err", O_WRONLY | O_CREAT | O_TRUNC);
  ::setenv("XDG_CACHE_HOME", cache.c_str(), 1);
  ::execv(argv.front(), argv.data());
  ::_exit(127);
}

}  // namespace

RunningProgram::RunningProgram(const std::vector<std::string>& arguments, const std::filesystem::path& cache,
                               const std::string& input) {
  write_text(streams_ / "in", input);
  std::string program = LOWTIDE_PROGRAM;
  std::vector<std::string> owned = arguments;
  std::vector<char*> argv{program.data()};
  for (std::string& argument : owned) argv.push_back(argument.data());
  argv.push_back(nullptr);
  child_ = ::fork();
  if (child_ < 0) throw std::runtime_error("cannot start a process");
  if (child_ == 0) exec_program(argv, cache, streams_);
}

RunningProgram::~RunningProgram() {
  if (child_ < 0) return;
  ::kill(child_, SIGKILL);
  ::waitpid(child_, nullptr, 0);
}

void RunningProgram::signal(int number) const {
  ::kill(child_, number);
}

Outcome RunningProgram::wait() {
  int status = 0;
  ::waitpid(child_, &status, 0);
  child_ = -1;
  Outcome outcome;
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.out = read_text(streams_ / "out");
  outcome.err = read_text(streams_ / "err");
  return outcome;
}

Outcome run_lowtide(const std::vector<std::string>& arguments, const std::filesystem::path& cache,
                    const std::string& input) {
  return RunningProgram(arguments, cache, input).wait();
}

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

nlohmann::json read_json(const std::filesystem::path& path) {
  return nlohmann::json::parse(read_text(path));
}

}  // namespace lowtide::test
