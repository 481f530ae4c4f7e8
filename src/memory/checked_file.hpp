// Files that must stay what they were when they were checked. Errors are ArchiveError, one line with file,
// reason and remedy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "lowtide/bytes.hpp"

namespace lowtide::memory {

/// The file as it was when it was checked.
struct FileIdentity {
  std::filesystem::path path;
  Bytes bytes = 0;
  std::int64_t modified_ns = 0;  // since 1970
};

/// "cannot VERB 'PATH': REASON; check REMEDY", the reason from errno.
[[noreturn]] void fail_with_errno(const FileIdentity& file, const char* verb, const char* remedy);
/// It ended before what it should hold.
[[noreturn]] void fail_shorter(const FileIdentity& file);
/// Throws when the open file is not what was checked.
void check_identity(int fd, const FileIdentity& file);
/// The same by path.
void check_identity(const FileIdentity& file);

/// An open file that closes itself; reads are safe from several threads.
class CheckedFile {
 public:
  /// Opens and checks.
  explicit CheckedFile(FileIdentity file);
  ~CheckedFile();
  CheckedFile(const CheckedFile&) = delete;
  CheckedFile& operator=(const CheckedFile&) = delete;

  void read(std::byte* to, Bytes size, Bytes offset) const;
  /// What was read is what was checked, if nothing is thrown.
  void check() const { check_identity(fd_, file_); }
  /// What was read shall not fill the system's cache: it is not asked for again.
  void drop_cache() const;

 private:
  FileIdentity file_;
  int fd_;
};

}  // namespace lowtide::memory
