// Members of zip archives (stored and deflated, zip64), with sizes that cannot lie beyond what the
// compression can do.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tensor_file/byte_source.hpp"

struct zip;

namespace lowtide::tensor_file {

struct ZipEntry {
  std::string name;
  std::uint64_t size = 0;  // uncompressed
};

/// Throws InputError for damaged archives. Not thread-safe. `file` must outlive it, and it the sources it
/// opens.
class ZipReader {
 public:
  explicit ZipReader(const InputFile& file);
  ~ZipReader();
  ZipReader(const ZipReader&) = delete;
  ZipReader& operator=(const ZipReader&) = delete;

  const InputFile& file() const { return file_; }
  /// In the archive's order, folders left out.
  const std::vector<ZipEntry>& entries() const { return entries_; }
  /// The member `entries()[index]`, from its first byte on. Its checksum is verified when the last byte is
  /// read.
  std::unique_ptr<ByteSource> open(std::size_t index) const;

 private:
  void list_entries();

  const InputFile& file_;
  struct zip* archive_ = nullptr;
  std::vector<ZipEntry> entries_;
  std::vector<std::uint64_t> positions_;  // per entry: its index in the archive
};

}  // namespace lowtide::tensor_file
