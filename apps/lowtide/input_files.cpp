#include "input_files.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "lowtide/error.hpp"
#include "tensor_file/tensor_file.hpp"

namespace lowtide::app {
namespace {

namespace fs = std::filesystem;

struct Found {
  fs::path path;
  fs::path below;     // path below the folder argument; the file name alone for a file argument
  fs::path absolute;  // lexically normal: the identity of a file name
};

fs::path absolute_name(const fs::path& path) {
  std::error_code ignored;
  const fs::path absolute = fs::absolute(path, ignored);
  return (ignored ? path : absolute).lexically_normal();
}

class Collector {
 public:
  explicit Collector(const fs::path& out_dir) {
    if (!out_dir.empty()) out_dir_ = identity(out_dir);
  }

  void add_argument(const fs::path& argument) {
    std::error_code error;
    const fs::file_status status = fs::status(argument, error);
    if (!fs::exists(status)) {
      throw UsageError("input '" + argument.string() + "' does not exist; check the name");
    }
    if (!fs::is_directory(status)) return add_file(argument, argument.filename());
    add_folder(argument, fs::path());
  }

  std::vector<Found> take() { return std::move(found_); }
  std::size_t ignored() const { return ignored_; }

 private:
  using Identity = std::pair<dev_t, ino_t>;

  static std::optional<Identity> identity(const fs::path& folder) {
    struct stat status {};
    if (::stat(folder.c_str(), &status) != 0) return std::nullopt;
    return Identity(status.st_dev, status.st_ino);
  }

  void add_file(const fs::path& path, const fs::path& below) {
    fs::path absolute = absolute_name(path);
    if (names_.insert(absolute).second) found_.push_back({path, below, std::move(absolute)});
  }

  void add_folder(const fs::path& folder, const fs::path& below) {
    const auto folder_identity = identity(folder);
    if (!folder_identity) fail_folder(folder, std::error_code(errno, std::generic_category()));
    const bool is_results = folder_identity == out_dir_ && !below.empty();  // as an argument, it is meant
    if (is_results || !visited_.insert(*folder_identity).second) return;    // links may form a loop
    for (const std::string& name : sorted_names(folder)) {
      const fs::path path = folder / name;
      std::error_code error;
      const fs::file_status status = fs::status(path, error);
      if (fs::is_directory(status)) {
        add_folder(path, below / name);
      } else if (fs::is_regular_file(status) && tensor_file::is_tensor_file(path)) {
        add_file(path, below / name);
      } else {
        ++ignored_;
      }
    }
  }

  static std::vector<std::string> sorted_names(const fs::path& folder) {
    std::vector<std::string> names;
    std::error_code error;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      names.push_back(it->path().filename().string());
    }
    if (error) fail_folder(folder, error);
    std::sort(names.begin(), names.end());
    return names;
  }

  [[noreturn]] static void fail_folder(const fs::path& folder, const std::error_code& error) {
    throw UsageError("cannot read folder '" + folder.string() + "': " + error.message() +
                     "; check its permissions");
  }

  std::vector<Found> found_;
  std::set<fs::path> names_;
  std::optional<Identity> out_dir_;
  std::set<Identity> visited_;
  std::size_t ignored_ = 0;
};

fs::path output_name(fs::path path) {
  return path.replace_extension(".safetensors");
}

fs::path common_folder(const std::vector<const Found*>& group) {
  fs::path common = group.front()->absolute.parent_path();
  for (const Found* found : group) {
    fs::path shared;
    const fs::path folder = found->absolute.parent_path();
    for (auto a = common.begin(), b = folder.begin(); a != common.end() && b != folder.end() && *a == *b;
         ++a, ++b)
      shared /= *a;
    common = shared;
  }
  return common;
}

bool all_different(const std::vector<fs::path>& names) {
  return std::set<fs::path>(names.begin(), names.end()).size() == names.size();
}

/// Output names of inputs with equal stems, in the group's order.
std::vector<fs::path> name_group(const std::vector<const Found*>& group) {
  if (group.size() == 1) return {output_name(group.front()->path.filename())};
  std::vector<fs::path> names;
  for (const Found* found : group) names.push_back(output_name(found->below));
  if (all_different(names)) return names;

  const fs::path common = common_folder(group);
  std::map<fs::path, const Found*> taken;
  names.clear();
  for (const Found* found : group) {
    names.push_back(output_name(found->absolute.lexically_relative(common)));
    const auto [other, is_new] = taken.emplace(names.back(), found);
    if (is_new) continue;
    throw UsageError("inputs '" + other->second->path.string() + "' and '" + found->path.string() +
                     "' would both be written to '" + names.back().string() + "'; rename one of them");
  }
  return names;
}

std::string join(std::span<const fs::path> arguments) {
  std::string text;
  for (const fs::path& argument : arguments) text += (text.empty() ? "'" : ", '") + argument.string() + "'";
  return text;
}

void refuse_overwriting(const std::vector<Found>& found, const std::vector<JobInput>& jobs,
                        const fs::path& out_dir) {
  std::set<fs::path> inputs;
  for (const Found& input : found) inputs.insert(fs::weakly_canonical(input.absolute));
  for (const JobInput& job : jobs) {
    const fs::path target = absolute_name(out_dir / job.output);
    if (!inputs.contains(fs::weakly_canonical(target))) continue;
    throw UsageError("the result of '" + job.path.string() + "' would overwrite the input '" +
                     target.string() + "'; choose another --out folder");
  }
}

}  // namespace

InputSet collect_inputs(std::span<const fs::path> arguments, const fs::path& out_dir) {
  Collector collector(out_dir);
  for (const fs::path& argument : arguments) collector.add_argument(argument);
  const std::vector<Found> found = collector.take();
  if (found.empty()) {
    throw UsageError("no inputs found in " + (arguments.empty() ? "an empty list" : join(arguments)) +
                     "; give .safetensors, .npy, .npz or .pt files, or folders with them");
  }

  std::map<std::string, std::vector<const Found*>> groups;  // by stem
  for (const Found& input : found) groups[input.path.stem().string()].push_back(&input);
  std::map<const Found*, fs::path> outputs;
  for (const auto& [stem, group] : groups) {
    const std::vector<fs::path> names = name_group(group);
    for (std::size_t i = 0; i < group.size(); ++i) outputs.emplace(group[i], names[i]);
  }

  InputSet set;
  set.ignored = collector.ignored();
  for (const Found& input : found) {
    const fs::path& output = outputs.at(&input);
    set.jobs.push_back({(output.parent_path() / input.path.filename()).string(), input.path, output});
  }
  refuse_overwriting(found, set.jobs, out_dir);
  return set;
}

}  // namespace lowtide::app
