#include "session/learned_peaks.hpp"

#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/sha256.hpp"
#include "lowtide/log.hpp"

namespace lowtide::detail {
namespace {

/// More entries than any sane batch has; beyond it the file starts anew.
constexpr std::size_t kMaxEntries = 20000;

std::map<std::string, Bytes> read_peaks(const std::string& path) {
  std::map<std::string, Bytes> peaks;
  std::ifstream file(path);
  if (!file) return peaks;
  const nlohmann::json json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return peaks;
  for (const auto& [key, value] : json.items()) {
    if (value.is_number_unsigned()) peaks[key] = value.get<Bytes>();
  }
  return peaks;
}

}  // namespace

LearnedPeaks::LearnedPeaks(std::string path) : path_(std::move(path)) {
  if (!path_.empty()) peaks_ = read_peaks(path_);
}

std::string LearnedPeaks::key(const std::string& fingerprint, const std::string& shapes,
                              const std::string& card, int threads) {
  Sha256 hash;
  hash.update(fingerprint + "\n" + shapes + "\n" + card + "\n" + std::to_string(threads) + "\n" +
              TORCH_VERSION);
  return hash.hex();
}

std::optional<Bytes> LearnedPeaks::find(const std::string& key) const {
  const auto found = peaks_.find(key);
  return found == peaks_.end() ? std::nullopt : std::optional(found->second);
}

void LearnedPeaks::record(const std::string& key, Bytes peak) {
  Bytes& known = peaks_[key];
  if (peak <= known) return;
  known = peak;
  changed_ = true;
}

void LearnedPeaks::save() {
  if (path_.empty() || !changed_) return;
  std::map<std::string, Bytes> all = read_peaks(path_);
  if (all.size() > kMaxEntries) all.clear();
  for (const auto& [key, peak] : peaks_) all[key] = std::max(all[key], peak);
  std::error_code error;
  const std::filesystem::path target(path_);
  std::filesystem::create_directories(target.parent_path(), error);
  const std::filesystem::path temporary = path_ + "." + std::to_string(::getpid()) + ".tmp";
  {
    std::ofstream file(temporary);
    file << nlohmann::json(all).dump();
    if (!file.flush()) error = std::make_error_code(std::errc::io_error);
  }
  if (!error) std::filesystem::rename(temporary, target, error);
  if (error) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    log_message(LogLevel::warning,
                "cannot write '" + path_ + "' (" + error.message() + "): measured peaks are not remembered");
    return;
  }
  changed_ = false;
}

}  // namespace lowtide::detail
