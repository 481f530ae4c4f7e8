#include "memory/checked_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "lowtide/error.hpp"

namespace lowtide::memory {
namespace {

std::string quoted(const std::filesystem::path& path) {
  return "'" + path.string() + "'";
}

void compare(bool known, const struct stat& now, const FileIdentity& file) {
  const std::int64_t modified = now.st_mtim.tv_sec * std::int64_t{1000000000} + now.st_mtim.tv_nsec;
  if (known && static_cast<Bytes>(now.st_size) < file.bytes) fail_shorter(file);
  if (!known || static_cast<Bytes>(now.st_size) != file.bytes || modified != file.modified_ns)
    throw ArchiveError(quoted(file.path) + " changed while it was in use; leave it alone and start again");
}

}  // namespace

void fail_with_errno(const FileIdentity& file, const char* verb, const char* remedy) {
  throw ArchiveError("cannot " + std::string(verb) + " " + quoted(file.path) + ": " + std::strerror(errno) +
                     "; check " + remedy);
}

void fail_shorter(const FileIdentity& file) {
  throw ArchiveError(quoted(file.path) + " became shorter while it was in use; export or copy it again");
}

void check_identity(int fd, const FileIdentity& file) {
  struct stat now {};
  const bool known = ::fstat(fd, &now) == 0;
  compare(known, now, file);
}

void check_identity(const FileIdentity& file) {
  struct stat now {};
  const bool known = ::stat(file.path.c_str(), &now) == 0;
  compare(known, now, file);
}

CheckedFile::CheckedFile(FileIdentity file)
    : file_(std::move(file)), fd_(::open(file_.path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (fd_ < 0) fail_with_errno(file_, "open", "path and permissions");
  try {
    check();
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

CheckedFile::~CheckedFile() {
  ::close(fd_);
}

void CheckedFile::read(std::byte* to, Bytes size, Bytes offset) const {
  while (size > 0) {
    const ssize_t got = ::pread(fd_, to, std::min<Bytes>(size, Bytes{1} << 30), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_with_errno(file_, "read", "the disk");
    if (got == 0) fail_shorter(file_);
    to += got;
    offset += static_cast<Bytes>(got);
    size -= static_cast<Bytes>(got);
  }
}

void CheckedFile::drop_cache() const {
  ::posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED);
}

}  // namespace lowtide::memory
