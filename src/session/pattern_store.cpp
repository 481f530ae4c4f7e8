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

constexpr char kMagic[] = "lowtide run 2\n";
constexpr const char* kSuffix = ".run";
/// Far more than any real wave has; it is also what a layout is made of in well under a second.
constexpr std::uint64_t kMostRequests = 200'000;
constexpr std::uint64_t kMostKeyBytes = 1 << 20;
/// Of all requests together.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 62;
constexpr std::uintmax_t kMostFileBytes = 16 << 20;
constexpr std::uint64_t kGranule = 512;

std::string checksum(std::string_view text) {
  Sha256 hash;
  hash.update(text);
  return hash.hex();
}

/// Magic, then key, requests and visits, each with its length before it, as 64-bit numbers of this machine,
/// then the SHA-256 of all that: a flipped bit would pass as another run.
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
  return text + checksum(text);
}

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

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
    const std::string_view bytes = text_.substr(at_, count);
    at_ += count;
    return bytes;
  }
  void require(bool holds) { good_ = good_ && holds; }
  bool good() const { return good_; }
  bool at_end() const { return at_ == text_.size(); }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
  bool good_ = true;
};

std::optional<memory::RequestTrace> from_text(const std::string& text, const std::string& key) {
  const std::size_t end = text.size() - std::min(text.size(), checksum("").size());
  Reader reader(std::string_view(text).substr(0, end));
  reader.require(checksum(std::string_view(text).substr(0, end)) == std::string_view(text).substr(end));
  reader.require(reader.take(sizeof(kMagic) - 1) == std::string_view(kMagic, sizeof(kMagic) - 1));
  reader.require(reader.take(reader.number(kMostKeyBytes)) == key);
  memory::RequestTrace trace;
  const std::uint64_t requests = reader.number(kMostRequests);
  std::uint64_t all_bytes = 0;
  for (std::uint64_t i = 0; i < requests && reader.good(); ++i) {
    const std::uint64_t bytes = reader.number(kMostBytes - all_bytes);
    all_bytes += bytes;
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
  const std::string name = path(key);
  std::error_code error;
  if (!fs::is_regular_file(name, error) || fs::file_size(name, error) > kMostFileBytes || error)
    return std::nullopt;
  std::ifstream file(name, std::ios::binary);
  if (!file) return std::nullopt;
  return from_text({std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()}, key);
}

void PatternStore::put(const std::string& key, const memory::RequestTrace& trace) const {
  if (folder_.empty() || trace.requests.size() > kMostRequests) return;
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

void PatternStore::drop(const std::string& key) const {
  std::error_code error;
  if (!folder_.empty()) fs::remove(path(key), error);
}

/// Also removes what killed processes left behind, in its turn.
void PatternStore::make_room() const {
  std::error_code error;
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  for (fs::directory_iterator entry(folder_, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code gone;  // another process may have removed it
    const auto written = entry->last_write_time(gone);
    if (!gone) files.emplace_back(written, entry->path());
  }
  if (files.size() <= kMostFiles) return;
  const auto kept = files.begin() + static_cast<std::ptrdiff_t>(files.size() - kMostFiles);
  std::nth_element(files.begin(), kept, files.end());
  for (auto file = files.begin(); file != kept; ++file) fs::remove(file->second, error);
}

}  // namespace lowtide::detail
