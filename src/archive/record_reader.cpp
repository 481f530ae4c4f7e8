#include "archive/record_reader.hpp"

#include <c10/util/Exception.h>
#include <caffe2/serialize/inline_container.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <unordered_set>

#include "graph/quote.hpp"
#include "lowtide/error.hpp"

namespace lowtide::archive {

using graph::in_quotes;

namespace {

/// Owns a file descriptor. Opening does not wait, as it would for a pipe that nobody writes to.
class File {
 public:
  explicit File(const std::filesystem::path& path)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (fd_ < 0) throw ArchiveError(in_quotes(path.string()) + ": cannot be opened: " + std::strerror(errno));
  }
  ~File() { ::close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

/// What LibTorch says, without the place in its sources and without the advice that follows the first
/// sentence.
std::string first_sentence(std::string_view text) {
  text = text.substr(0, text.find('\n'));
  if (text.starts_with('[')) text.remove_prefix(std::min(text.find("] "), text.size()));
  text.remove_prefix(std::min(text.find_first_not_of("]. "), text.size()));
  return std::string(text.substr(0, text.find(". ")));
}

/// The parts of a zip local file header that we rely on (APPNOTE.TXT, 4.3.7).
constexpr std::size_t kLocalHeaderBytes = 30;
std::uint32_t little16(const unsigned char* bytes) {
  return bytes[0] | static_cast<std::uint32_t>(bytes[1]) << 8;
}

}  // namespace

struct RecordReader::Impl {
  /// Calls LibTorch; whatever it throws becomes one line.
  template <class Function>
  auto guarded(const std::string& what, Function function) const {
    try {
      return function();
    } catch (const c10::Error& error) {
      throw ArchiveError(path_shown + ": " + what + " (" + first_sentence(error.what_without_backtrace()) +
                         ")");
    } catch (const std::exception& error) {
      throw ArchiveError(path_shown + ": " + what + " (" + first_sentence(error.what()) + ")");
    }
  }

  explicit Impl(const std::filesystem::path& path) : path_shown(in_quotes(path.string())), file(path) {
    if (::fstat(file.fd(), &status) != 0)
      throw ArchiveError(path_shown + ": cannot be read: " + std::strerror(errno));
    if (S_ISDIR(status.st_mode)) throw ArchiveError(path_shown + ": is a folder; name the .pt2 file");
    if (!S_ISREG(status.st_mode)) throw ArchiveError(path_shown + ": is no regular file");
    guarded("is damaged or cut off, no whole zip archive", [&] { reader.emplace(path.string()); });
  }

  std::string path_shown;
  File file;
  struct stat status {};
  mutable std::optional<caffe2::serialize::PyTorchStreamReader> reader;
  std::unordered_set<std::string> names;
};

RecordReader::RecordReader(const std::filesystem::path& path) : impl_(std::make_unique<Impl>(path)) {
  names_ = impl_->guarded("has a damaged directory", [&] { return impl_->reader->getAllRecords(); });
  impl_->names.insert(names_.begin(), names_.end());
}

RecordReader::~RecordReader() = default;

bool RecordReader::has(const std::string& name) const {
  return impl_->names.contains(name);
}

std::uint64_t RecordReader::size(const std::string& name) const {
  if (!has(name)) fail("record " + in_quotes(name) + " is missing");
  return impl_->guarded("record " + in_quotes(name) + " is damaged",
                        [&] { return impl_->reader->getRecordSize(name); });
}

std::string RecordReader::read(const std::string& name) const {
  // A compressed record could claim to be of any size.
  if (size(name) > file_bytes()) {
    fail("record " + in_quotes(name) +
         " is larger than the file, so compressed; save the program with torch.export.save");
  }
  return impl_->guarded("record " + in_quotes(name) + " is damaged", [&] {
    const auto [data, bytes] = impl_->reader->getRecord(name);
    return std::string(static_cast<const char*>(data.get()), bytes);
  });
}

std::uint64_t RecordReader::offset(const std::string& name) const {
  const std::uint64_t bytes = size(name);
  const std::uint64_t header_offset = impl_->guarded("record " + in_quotes(name) + " is damaged", [&] {
    return impl_->reader->getRecordHeaderOffset(name);
  });
  std::array<unsigned char, kLocalHeaderBytes> header{};
  if (header_offset > file_bytes() ||
      ::pread(impl_->file.fd(), header.data(), header.size(), static_cast<off_t>(header_offset)) !=
          static_cast<ssize_t>(header.size()) ||
      std::memcmp(header.data(), "PK\3\4", 4) != 0) {
    fail("record " + in_quotes(name) + " has a damaged header");
  }
  const bool encrypted = (header[6] & 1) != 0;
  if (encrypted || little16(&header[8]) != 0) {
    fail("record " + in_quotes(name) +
         " is compressed or encrypted; save the program with torch.export.save");
  }
  const std::uint64_t begin =
      header_offset + kLocalHeaderBytes + little16(&header[26]) + little16(&header[28]);
  if (begin > file_bytes() || bytes > file_bytes() - begin)
    fail("record " + in_quotes(name) + " leaves the file");
  return begin;
}

std::uint64_t RecordReader::file_bytes() const {
  return static_cast<std::uint64_t>(impl_->status.st_size);
}

std::int64_t RecordReader::modified_ns() const {
  return std::int64_t{impl_->status.st_mtim.tv_sec} * 1'000'000'000 + impl_->status.st_mtim.tv_nsec;
}

void RecordReader::fail(const std::string& what) const {
  throw ArchiveError(impl_->path_shown + ": " + what);
}

}  // namespace lowtide::archive
