// The zip layer: names, sizes, places and contents of an archive's records. The only user of LibTorch's
// reader here; its exceptions become ArchiveErrors of one line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lowtide::archive {

/// A zip archive opened for reading. Names are without the root folder. Not thread-safe.
class RecordReader {
 public:
  /// Throws ArchiveError when the file cannot be read or is no whole zip archive.
  explicit RecordReader(const std::filesystem::path& path);
  ~RecordReader();
  RecordReader(const RecordReader&) = delete;
  RecordReader& operator=(const RecordReader&) = delete;

  /// In the order of the archive's directory.
  const std::vector<std::string>& names() const { return names_; }
  bool has(const std::string& name) const;
  /// From the archive's directory.
  std::uint64_t size(const std::string& name) const;
  /// The contents. LibTorch does not compare checksums, so damaged contents are possible.
  std::string read(const std::string& name) const;
  /// Where the record's bytes begin in the file. They are not compressed and lie inside of the file.
  std::uint64_t offset(const std::string& name) const;

  std::uint64_t file_bytes() const;
  /// Modification time, nanoseconds since 1970.
  std::int64_t modified_ns() const;

  /// "'PATH': WHAT".
  [[noreturn]] void fail(const std::string& what) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::vector<std::string> names_;
};

}  // namespace lowtide::archive
