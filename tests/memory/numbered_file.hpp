// A file of which each byte tells its place, and memory to read it into.
#pragma once

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>

#include "memory/read_ahead.hpp"

namespace lowtide::test {

inline std::byte byte_at(Bytes offset) {
  return static_cast<std::byte>(offset * 31 + offset / 251);
}

/// A file of bytes that tell their place; removes itself.
class NumberedFile {
 public:
  explicit NumberedFile(Bytes bytes) : bytes_(bytes) {
    std::string pattern = (std::filesystem::temp_directory_path() / "read_ahead_XXXXXX").string();
    const int fd = ::mkstemp(pattern.data());
    ::close(fd);
    path_ = pattern;
    write();
  }
  ~NumberedFile() { std::filesystem::remove(path_); }

  void write() const {
    std::string text(bytes_, '\0');
    for (Bytes i = 0; i < bytes_; ++i) text[i] = static_cast<char>(byte_at(i));
    std::ofstream(path_, std::ios::binary) << text;
  }
  void shorten(Bytes bytes) const { std::filesystem::resize_file(path_, bytes); }
  memory::FileIdentity identity() const {
    struct stat status {};
    ::stat(path_.c_str(), &status);
    return {path_, static_cast<Bytes>(status.st_size),
            status.st_mtim.tv_sec * std::int64_t{1000000000} + status.st_mtim.tv_nsec};
  }

 private:
  Bytes bytes_;
  std::filesystem::path path_;
};

class Ring {
 public:
  explicit Ring(Bytes bytes) : bytes_(bytes) {
    data_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  ~Ring() { ::munmap(data_, bytes_); }
  std::span<std::byte> span() const { return {static_cast<std::byte*>(data_), bytes_}; }

 private:
  Bytes bytes_;
  void* data_;
};

}  // namespace lowtide::test
