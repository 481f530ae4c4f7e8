// Bytes of a file, checked against what the file really has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace lowtide::tensor_file {

/// A regular file opened for reading; closes it at the end. Size is that at opening; a file that shrinks
/// meanwhile is an error, not a crash (which is why nothing is mapped).
class InputFile {
 public:
  /// Throws InputError: no such file, no permission, not a regular file.
  explicit InputFile(const std::filesystem::path& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t size() const { return size_; }
  int descriptor() const { return fd_; }

  /// Exactly `size` bytes from `offset` on, or InputError. Thread-safe.
  void read_at(std::uint64_t offset, void* data, std::size_t size) const;

  /// Throws InputError naming this file.
  [[noreturn]] void fail(const std::string& reason, const std::string& remedy) const;
  /// fail() for content that contradicts itself.
  [[noreturn]] void fail_damaged(const std::string& reason) const {
    fail(reason, "the file is damaged: write it again");
  }

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  std::uint64_t size_ = 0;
};

/// A run of bytes read front to back: a stretch of a file, or a member of a zip archive.
class ByteSource {
 public:
  explicit ByteSource(std::uint64_t size) : remaining_(size) {}
  virtual ~ByteSource() = default;
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  /// Bytes not read yet.
  std::uint64_t remaining() const { return remaining_; }
  /// Exactly `size` bytes, or InputError.
  void read(void* data, std::size_t size);
  /// The file the bytes come from, for messages.
  virtual const InputFile& file() const = 0;

 private:
  virtual void do_read(void* data, std::size_t size) = 0;

  std::uint64_t remaining_;
};

/// Bytes [begin, end) of a file. The file must outlive it.
class FileStretch final : public ByteSource {
 public:
  FileStretch(const InputFile& file, std::uint64_t begin, std::uint64_t end)
      : ByteSource(end - begin), file_(file), offset_(begin) {}
  const InputFile& file() const override { return file_; }

 private:
  void do_read(void* data, std::size_t size) override {
    file_.read_at(offset_, data, size);
    offset_ += size;
  }

  const InputFile& file_;
  std::uint64_t offset_;
};

}  // namespace lowtide::tensor_file
