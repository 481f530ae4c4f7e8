#include "output_files.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

#include "lowtide/error.hpp"

namespace lowtide::app {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = ".lowtide-";
constexpr std::string_view kSuffix = ".tmp";

/// ".lowtide-PID-COUNT.tmp": the process is in the name so that others know whether it is still at work.
std::string temporary_name() {
  static std::atomic<unsigned> count{0};
  return std::string(kPrefix) + std::to_string(::getpid()) + "-" + std::to_string(count++) +
         std::string(kSuffix);
}

std::optional<pid_t> owner_of_temporary(std::string_view name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  pid_t pid = 0;
  const auto [end, status] = std::from_chars(name.data(), name.data() + name.size(), pid);
  if (status != std::errc() || pid <= 0 || *end != '-') return std::nullopt;
  return pid;
}

bool still_runs(pid_t pid) {
  return pid != ::getpid() && (::kill(pid, 0) == 0 || errno == EPERM);
}

[[noreturn]] void fail(const fs::path& path, const std::error_code& error) {
  throw Error("cannot write '" + path.string() + "': " + error.message() +
              "; check space, folder and permissions");
}

std::error_code last_error() {
  return {errno, std::generic_category()};
}

/// Waits until the file's or folder's content is on the disk.
void sync_to_disk(const fs::path& path, int kind) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | kind);
  if (fd < 0) fail(path, last_error());
  const bool ok = ::fsync(fd) == 0 || errno == EINVAL;  // EINVAL: a file system without fsync
  const std::error_code error = last_error();
  ::close(fd);
  if (!ok) fail(path, error);
}

/// Removes its file unless told that it is gone.
class Temporary {
 public:
  explicit Temporary(fs::path path) : path_(std::move(path)) {}
  ~Temporary() {
    std::error_code ignored;
    if (!moved_) fs::remove(path_, ignored);
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  const fs::path& path() const { return path_; }
  void move_to(const fs::path& target) {
    if (::rename(path_.c_str(), target.c_str()) != 0) fail(target, last_error());
    moved_ = true;
  }

 private:
  fs::path path_;
  bool moved_ = false;
};

}  // namespace

std::string output_path_problem(const fs::path& relative) {
  const std::string& text = relative.native();
  if (text.empty()) return "is empty";
  if (text.find('\0') != std::string::npos) return "contains a zero byte";
  if (relative.is_absolute()) return "is absolute";
  for (const fs::path& part : relative) {
    if (part == "..") return "contains '..'";
  }
  const fs::path name = relative.lexically_normal().filename();
  if (name.empty() || name == ".") return "names a folder";
  if (name.native().starts_with(kPrefix)) return "has a name kept for temporaries";
  return {};
}

fs::path resolve_output(const fs::path& dir, const fs::path& relative) {
  const std::string problem = output_path_problem(relative);
  if (!problem.empty()) {
    throw InputError("output '" + std::string(relative.native().c_str()) + "' " + problem +
                     "; give a file name below the output folder");
  }
  return dir / relative.lexically_normal();
}

void write_atomically(const fs::path& dir, const fs::path& relative,
                      const std::function<void(const fs::path&)>& write) {
  const fs::path target = resolve_output(dir, relative);
  const fs::path folder = target.parent_path().empty() ? fs::path(".") : target.parent_path();
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(folder, error);

  Temporary temporary(folder / temporary_name());
  write(temporary.path());
  sync_to_disk(temporary.path(), 0);
  temporary.move_to(target);
  sync_to_disk(folder, O_DIRECTORY);
}

std::size_t remove_stray_temporaries(const fs::path& dir) {
  std::size_t removed = 0;
  std::error_code error;
  const auto options = fs::directory_options::skip_permission_denied;  // and links are not followed
  for (fs::recursive_directory_iterator it(dir, options, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    const auto owner = owner_of_temporary(name);
    std::error_code ignored;
    if (!owner || still_runs(*owner) || !it->is_regular_file(ignored)) continue;
    if (fs::remove(it->path(), ignored)) ++removed;
  }
  return removed;
}

}  // namespace lowtide::app
