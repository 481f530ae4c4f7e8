#include "tensor_file/zip_reader.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <zip.h>

#include <algorithm>
#include <utility>

#include "base/checked_math.hpp"
#include "tensor_file/file_error.hpp"

namespace lowtide::tensor_file {
namespace {

// Deflate cannot do better than 1032:1; a member that claims more is lying about its size.
constexpr std::uint64_t kBestRatio = 1032;
constexpr std::uint64_t kRatioSlack = UINT64_C(1032);

std::uint64_t most_bytes(const zip_stat_t& status) {
  if (status.comp_method == ZIP_CM_STORE) return status.comp_size;
  return checked_mul<std::uint64_t>(status.comp_size, kBestRatio).value_or(UINT64_MAX - kRatioSlack) +
         kRatioSlack;
}

class ZipMember final : public ByteSource {
 public:
  ZipMember(const InputFile& file, zip_file_t* member, std::string name, std::uint64_t size)
      : ByteSource(size), file_(file), member_(member), name_(std::move(name)) {
    if (size == 0) verify_end();
  }
  ~ZipMember() override { zip_fclose(member_); }
  const InputFile& file() const override { return file_; }

 private:
  void do_read(void* data, std::size_t size) override {
    constexpr std::size_t kLargestRead = std::size_t{1} << 30;
    auto* to = static_cast<char*>(data);
    while (size > 0) {
      const zip_int64_t got = zip_fread(member_, to, std::min(size, kLargestRead));
      if (got <= 0) fail();
      to += got;
      size -= static_cast<std::size_t>(got);
    }
    if (remaining() == 0) verify_end();
  }

  /// One read beyond the last byte makes libzip compare the checksum, and must find nothing.
  void verify_end() {
    char beyond = 0;
    if (zip_fread(member_, &beyond, 1) != 0) fail();
  }

  [[noreturn]] void fail() const {
    file_.fail_damaged("the content of member '" + printable(name_) + "' is broken");
  }

  const InputFile& file_;
  zip_file_t* member_;
  std::string name_;
};

}  // namespace

ZipReader::ZipReader(const InputFile& file) : file_(file) {
  const int own = ::fcntl(file.descriptor(), F_DUPFD_CLOEXEC, 0);
  if (own < 0) file.fail("too many open files", "raise the limit with ulimit -n");
  int error = 0;
  archive_ = zip_fdopen(own, 0, &error);  // takes the descriptor
  if (archive_ == nullptr) {
    ::close(own);
    file.fail_damaged("it is no readable zip archive");
  }
  try {
    list_entries();
  } catch (...) {
    zip_discard(archive_);
    throw;
  }
}

ZipReader::~ZipReader() {
  zip_discard(archive_);
}

void ZipReader::list_entries() {
  const zip_int64_t count = zip_get_num_entries(archive_, 0);
  std::uint64_t compressed = 0;
  for (zip_int64_t i = 0; i < count; ++i) {
    zip_stat_t status;
    const auto index = static_cast<zip_uint64_t>(i);
    if (zip_stat_index(archive_, index, ZIP_FL_ENC_RAW, &status) != 0)
      file_.fail_damaged("its zip directory is broken");
    const std::string name = status.name;
    const std::string what = "member '" + printable(name) + "' ";
    if (name.ends_with('/')) continue;
    if (status.encryption_method != ZIP_EM_NONE)
      file_.fail(what + "is encrypted", "write the file without a password");
    if (status.comp_method != ZIP_CM_STORE && status.comp_method != ZIP_CM_DEFLATE) {
      file_.fail(what + "uses an unknown compression", "write the file stored or deflated");
    }
    // Members that overlap could multiply a small file without end.
    const auto sum = checked_add<std::uint64_t>(compressed, status.comp_size);
    if (!sum || *sum > file_.size()) file_.fail_damaged("its members claim more bytes than it has");
    compressed = *sum;
    if (status.size > most_bytes(status)) file_.fail_damaged(what + "claims more bytes than it can have");
    entries_.push_back({name, status.size});
    positions_.push_back(index);
  }
}

std::unique_ptr<ByteSource> ZipReader::open(std::size_t index) const {
  const ZipEntry& entry = entries_[index];
  zip_file_t* member = zip_fopen_index(archive_, positions_[index], 0);
  if (member == nullptr) file_.fail_damaged("member '" + printable(entry.name) + "' is broken");
  return std::make_unique<ZipMember>(file_, member, entry.name, entry.size);
}

}  // namespace lowtide::tensor_file
