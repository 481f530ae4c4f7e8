#include "session/learned_shapes.hpp"

#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/sha256.hpp"
#include "lowtide/log.hpp"

namespace lowtide::detail {

/// How entries look in the file; a friend, since nobody else needs to see them.
struct EntryJson {
  using Entry = LearnedShapes::Entry;

  static nlohmann::json write(const Entry& entry) {
    nlohmann::json json{{"peak", entry.peak}};
    if (entry.basis.empty()) return json;
    json["basis"] = entry.basis;
    json["peaks"] = entry.peaks;
    json["after"] = entry.after;
    json["host_ns"] = entry.host_ns;
    json["kernel_ns"] = entry.kernel_ns;
    return json;
  }

  /// Nothing for what was not written by us.
  static std::optional<Entry> read(const nlohmann::json& json) {
    if (!json.is_object() || !json.contains("peak") || !json["peak"].is_number_unsigned())
      return std::nullopt;
    Entry entry{.peak = json["peak"].get<Bytes>()};
    if (!json.contains("basis") || !json["basis"].is_string()) return entry;
    Entry whole = entry;
    whole.basis = json["basis"].get<std::string>();
    const bool complete = numbers(json, "peaks", whole.peaks) && numbers(json, "after", whole.after) &&
                          numbers(json, "host_ns", whole.host_ns) &&
                          numbers(json, "kernel_ns", whole.kernel_ns);
    return complete ? whole : entry;
  }

 private:
  static bool numbers(const nlohmann::json& json, const char* name, std::vector<std::uint64_t>& to) {
    if (!json.contains(name) || !json[name].is_array() || json[name].size() % 2 != 0) return false;
    for (const nlohmann::json& number : json[name]) {
      if (!number.is_number_unsigned()) return false;
      to.push_back(number.get<std::uint64_t>());
    }
    return true;
  }
};

namespace {

/// More than any sane batch leaves behind; beyond it the file starts anew.
constexpr std::size_t kMaxEntries = 20000;
constexpr std::uintmax_t kMaxFileBytes = 64 << 20;
constexpr int kFormat = 3;

std::uint64_t to_ns(double seconds) {
  return static_cast<std::uint64_t>(std::llround(std::max(seconds, 0.0) * 1e9));
}

/// Calls `differ(index, value)` for index, value pairs of a list with indices below `count`.
template <class Differ>
void for_each_difference(const std::vector<std::uint64_t>& list, std::size_t count, Differ differ) {
  for (std::size_t i = 0; i + 1 < list.size(); i += 2) {
    if (list[i] < count) differ(list[i], list[i + 1]);
  }
}

}  // namespace

std::string LearnedShapes::basis(const JobProfile& described) {
  Sha256 hash;
  std::string text;
  for (const plan::StepBytes& step : described.memory.steps)
    text += std::to_string(step.peak) + "," + std::to_string(step.after) + ";";
  for (const plan::StepCost& cost : described.costs)
    text += std::to_string(to_ns(cost.host_s)) + "," + std::to_string(to_ns(cost.kernel_s)) + ";";
  hash.update(text);
  return hash.hex().substr(0, 16);
}

std::map<std::string, LearnedShapes::Entry> LearnedShapes::read(const std::string& path) {
  std::map<std::string, Entry> entries;
  std::error_code error;
  if (const auto size = std::filesystem::file_size(path, error); error || size > kMaxFileBytes)
    return entries;
  std::ifstream file(path);
  const nlohmann::json json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.value("format", nlohmann::json()) != kFormat) return entries;
  if (!json.contains("shapes") || !json["shapes"].is_object()) return entries;
  for (const auto& [key, value] : json["shapes"].items()) {
    if (auto entry = EntryJson::read(value)) entries[key] = std::move(*entry);
  }
  return entries;
}

LearnedShapes::LearnedShapes(std::string path) : path_(std::move(path)) {
  if (!path_.empty()) entries_ = read(path_);
}

std::string LearnedShapes::key(const std::string& fingerprint, const std::string& shapes,
                               const std::string& card, int threads) {
  Sha256 hash;
  hash.update(fingerprint + "\n" + shapes + "\n" + card + "\n" + std::to_string(threads) + "\n" +
              TORCH_VERSION);
  return hash.hex();
}

std::optional<LearnedShape> LearnedShapes::find(const std::string& key, const JobProfile& described) const {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return std::nullopt;
  const Entry& entry = found->second;
  LearnedShape shape{entry.peak, described};
  if (entry.basis != basis(described)) {
    // Only the peak of the whole is known: no step took more.
    for (plan::StepBytes& step : shape.profile.memory.steps) step.peak = std::min(step.peak, entry.peak);
    return shape;
  }
  std::vector<plan::StepBytes>& steps = shape.profile.memory.steps;
  std::vector<plan::StepCost>& costs = shape.profile.costs;
  for_each_difference(entry.peaks, steps.size(), [&](auto i, auto value) { steps[i].peak = value; });
  for_each_difference(entry.after, steps.size(), [&](auto i, auto value) { steps[i].after = value; });
  for_each_difference(entry.host_ns, costs.size(),
                      [&](auto i, auto ns) { costs[i].host_s = double(ns) * 1e-9; });
  for_each_difference(entry.kernel_ns, costs.size(),
                      [&](auto i, auto ns) { costs[i].kernel_s = double(ns) * 1e-9; });
  return shape;
}

void LearnedShapes::record_peak(const std::string& key, Bytes peak) {
  Bytes& known = entries_[key].peak;
  if (peak <= known) return;
  known = peak;
  changed_ = true;
}

void LearnedShapes::record(const std::string& key, const JobProfile& described,
                           const LearnedShape& measured) {
  Entry& entry = entries_[key];
  LearnedShape merged = measured;
  if (entry.basis == basis(described)) {
    const LearnedShape known = *find(key, described);
    merged.profile.memory = plan::largest_of(known.profile.memory, measured.profile.memory);
    for (std::size_t i = 0; i < merged.profile.costs.size(); ++i) {
      plan::StepCost& cost = merged.profile.costs[i];
      cost.host_s = std::min(cost.host_s, known.profile.costs[i].host_s);
      cost.kernel_s = std::min(cost.kernel_s, known.profile.costs[i].kernel_s);
    }
  }
  Entry fresh{.peak = std::max(entry.peak, measured.peak), .basis = basis(described)};
  const auto differ = [](Differences& list, std::size_t i, std::uint64_t described_as, std::uint64_t value) {
    if (value != described_as) list.insert(list.end(), {i, value});
  };
  for (std::size_t i = 0; i < described.memory.steps.size(); ++i) {
    const plan::StepBytes& before = described.memory.steps[i];
    const plan::StepBytes& now = merged.profile.memory.steps[i];
    differ(fresh.peaks, i, before.peak, now.peak);
    differ(fresh.after, i, before.after, now.after);
  }
  for (std::size_t i = 0; i < described.costs.size(); ++i) {
    const plan::StepCost& before = described.costs[i];
    const plan::StepCost& now = merged.profile.costs[i];
    differ(fresh.host_ns, i, to_ns(before.host_s), to_ns(now.host_s));
    differ(fresh.kernel_ns, i, to_ns(before.kernel_s), to_ns(now.kernel_s));
  }
  entry = std::move(fresh);
  changed_ = true;
}

void LearnedShapes::save() {
  if (path_.empty() || !changed_) return;
  std::map<std::string, Entry> all = read(path_);
  if (all.size() > kMaxEntries) all.clear();
  for (const auto& [key, entry] : entries_) {
    const Bytes peak = std::max(all[key].peak, entry.peak);
    all[key] = entry;
    all[key].peak = peak;
  }
  nlohmann::json shapes = nlohmann::json::object();
  for (const auto& [key, entry] : all) shapes[key] = EntryJson::write(entry);
  std::error_code error;
  const std::filesystem::path target(path_);
  std::filesystem::create_directories(target.parent_path(), error);
  const std::filesystem::path temporary = path_ + "." + std::to_string(::getpid()) + ".tmp";
  {
    std::ofstream file(temporary);
    file << nlohmann::json{{"format", kFormat}, {"shapes", std::move(shapes)}}.dump();
    if (!file.flush()) error = std::make_error_code(std::errc::io_error);
  }
  if (!error) std::filesystem::rename(temporary, target, error);
  if (error) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    log_message(LogLevel::warning,
                "cannot write '" + path_ + "' (" + error.message() + "): measurements are not remembered");
    return;
  }
  changed_ = false;
}

}  // namespace lowtide::detail
