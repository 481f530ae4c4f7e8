#include "tensor_file/byte_source.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "tensor_file/file_error.hpp"

namespace lowtide::tensor_file {

InputFile::InputFile(const std::filesystem::path& path) : path_(path) {
  // Non-blocking, or a named pipe would hang here for a writer that never comes.
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) fail(std::generic_category().message(errno), "check the name and its permissions");
  struct stat status {};
  const bool known = ::fstat(fd_, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    ::close(fd_);
    fail("it is not a regular file", "name a .safetensors, .npy, .npz or .pt file");
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

InputFile::~InputFile() {
  ::close(fd_);
}

void InputFile::read_at(std::uint64_t offset, void* data, std::size_t size) const {
  constexpr std::size_t kLargestRead = std::size_t{1} << 30;  // Linux reads at most 2 GiB at once
  auto* to = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t got = ::pread(fd_, to, std::min(size, kLargestRead), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(std::generic_category().message(errno), "check the disk");
    if (got == 0) fail("it ends before its data does", "the file is incomplete: write it again");
    to += got;
    offset += static_cast<std::uint64_t>(got);
    size -= static_cast<std::size_t>(got);
  }
}

void InputFile::fail(const std::string& reason, const std::string& remedy) const {
  fail_reading(path_, reason, remedy);
}

void ByteSource::read(void* data, std::size_t size) {
  if (size > remaining_)
    file().fail("it ends before its data does", "the file is incomplete: write it again");
  remaining_ -= size;
  do_read(data, size);
}

}  // namespace lowtide::tensor_file
