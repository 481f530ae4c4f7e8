#include "session/pattern_store.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "base/sha256.hpp"

namespace lowtide::detail {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[] = "lowtide run 1\n";
constexpr const char* kSuffix = ".run";
/// Of numbers in one file: far more than any real job has requests.
constexpr std::uint64_t kMostNumbers = 8 << 20;
/// No request is larger.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 48;
constexpr std::uint64_t kGranule = 512;

/// Magic, then key, requests and visits, each with its length before it, as 64-bit numbers of this machine.
std::string to_text(const std::string& key, const memory::RequestTrace& trace) {
  std::string text(kMagic, sizeof(kMagic) - 1);
  const auto number = [&](std::uint64_t value) {
    text.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  number(key.size());
  text += key;
  number(trace.requests.size());
  for (const auto& request : trace.requests) {
    number(request.bytes);
    number(request.until);
  }
  number(trace.visits.size());
  for (const auto& visit : trace.visits) {
    number(visit.id);
    number(visit.first);
  }
  return text;
}

class Reader {
 public:
  explicit Reader(const std::string& text) : text_(text) {}

  /// The next number; more than `most` is as bad as none at all.
  std::uint64_t number(std::uint64_t most) {
    std::uint64_t value = 0;
    const std::string_view bytes = take(sizeof(value));
    if (!good_) return 0;
    std::memcpy(&value, bytes.data(), sizeof(value));
    good_ = value <= most;
    return good_ ? value : 0;
  }
  std::string_view take(std::uint64_t count) {
    good_ = good_ && count <= text_.size() - at_;
    if (!good_) return {};
    const std::string_view bytes = std::string_view(text_).substr(at_, count);
    at_ += count;
    return bytes;
  }
  void require(bool holds) { good_ = good_ && holds; }
  bool good() const { return good_; }
  bool at_end() const { return at_ == text_.size(); }

 private:
  const std::string& text_;
  std::size_t at_ = 0;
  bool good_ = true;
};

std::optional<memory::RequestTrace> from_text(const std::string& text, const std::string& key) {
  Reader reader(text);
  reader.require(reader.take(sizeof(kMagic) - 1) == std::string_view(kMagic, sizeof(kMagic) - 1));
  reader.require(reader.take(reader.number(kMostNumbers)) == key);
  memory::RequestTrace trace;
  const std::uint64_t requests = reader.number(kMostNumbers);
  for (std::uint64_t i = 0; i < requests && reader.good(); ++i) {
    const std::uint64_t bytes = reader.number(kMostBytes);
    const auto until = static_cast<std::uint32_t>(reader.number(requests));
    reader.require(bytes % kGranule == 0 && until > i);
    trace.requests.push_back({bytes, until});
  }
  const std::uint64_t visits = reader.number(requests);
  for (std::uint64_t i = 0; i < visits && reader.good(); ++i) {
    const std::uint64_t id = reader.number(UINT64_MAX);
    const auto first = static_cast<std::uint32_t>(reader.number(requests));
    reader.require(trace.visits.empty() ? first == 0 : first > trace.visits.back().first);
    trace.visits.push_back({id, first});
  }
  if (!reader.good() || !reader.at_end()) return std::nullopt;
  return trace;
}

}  // namespace

std::string PatternStore::path(const std::string& key) const {
  Sha256 hash;
  hash.update(key);
  return folder_ + "/" + hash.hex() + kSuffix;
}

std::optional<memory::RequestTrace> PatternStore::find(const std::string& key) const {
  if (folder_.empty()) return std::nullopt;
  std::ifstream file(path(key), std::ios::binary);
  if (!file) return std::nullopt;
  return from_text({std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()}, key);
}

void PatternStore::put(const std::string& key, const memory::RequestTrace& trace) const {
  if (folder_.empty() || trace.requests.size() > kMostNumbers) return;
  std::error_code error;
  fs::create_directories(folder_, error);
  const std::string target = path(key);
  const std::string temporary = target + "." + std::to_string(::getpid()) + ".tmp";
  {
    std::ofstream file(temporary, std::ios::binary);
    file << to_text(key, trace);
    if (!file.flush()) error = std::make_error_code(std::errc::io_error);
  }
  if (!error) fs::rename(temporary, target, error);
  if (error) fs::remove(temporary, error);
  make_room();
}

/// Also removes what killed processes left behind, in its turn.
void PatternStore::make_room() const {
  std::error_code error;
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    const auto written = entry.last_write_time(error);
    if (!error) files.emplace_back(written, entry.path());
  }
  if (files.size() <= kMostFiles) return;
  const auto kept = files.begin() + static_cast<std::ptrdiff_t>(files.size() - kMostFiles);
  std::nth_element(files.begin(), kept, files.end());
  for (auto file = files.begin(); file != kept; ++file) fs::remove(file->second, error);
}

}  // namespace lowtide::detail
