#include "memory/read_ahead.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>

#include "base/checked_math.hpp"
#include "lowtide/error.hpp"

namespace lowtide::memory {
namespace {

/// What lies between two parts is read along when it is no more than this: a jump costs more.
constexpr Bytes kLargestGap = 64 * 1024;
constexpr Bytes kSector = 512;

Bytes round_down(Bytes bytes) {
  return bytes - bytes % kReadBlock;
}

}  // namespace

ReadAhead::ReadAhead(const FileIdentity& file, std::span<const Extent> order, std::span<std::byte> ring,
                     Bytes piece_bytes, Pread pread)
    : file_(file), ring_(ring), piece_bytes_(piece_bytes), pieces_(ring.size() / piece_bytes), pread_(pread) {
  if (pieces_ < 2 || piece_bytes % kReadBlock != 0)
    throw std::logic_error("a ring has two pieces at least, of whole blocks");
  arrange(order);
  if (reads_.empty()) return;
  done_.assign(reads_.size(), false);
  open();
  try {
    check_identity(fd_, file_);
    for (std::thread& thread : threads_) thread = std::thread([this] { work(); });
  } catch (...) {
    finish_threads();
    throw;
  }
}

ReadAhead::~ReadAhead() {
  finish_threads();
}

void ReadAhead::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
}

void ReadAhead::finish_threads() noexcept {
  stop();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
  if (fd_ >= 0) ::close(fd_);
  if (direct_fd_ >= 0) ::close(direct_fd_);
}

/// Cuts the order into reads of at most a piece.
void ReadAhead::arrange(std::span<const Extent> order) {
  Bytes end = 0;  // of the last part, in the file
  for (const Extent& extent : order) {
    Bytes at = extent.offset;
    for (Bytes left = extent.bytes; left > 0;) {
      const bool follows =
          !reads_.empty() && at >= end && at - end <= kLargestGap && at < reads_.back().offset + piece_bytes_;
      if (!follows) {
        if (!slices_.empty()) slices_.back().ends_piece = true;
        reads_.push_back({.offset = round_down(at)});
      }
      Read& read = reads_.back();
      const Bytes part = std::min(left, read.offset + piece_bytes_ - at);
      slices_.push_back(
          {.read = static_cast<std::uint32_t>(reads_.size() - 1), .offset = at - read.offset, .bytes = part});
      at += part;
      left -= part;
      end = at;
      read.bytes = end - read.offset;
      read.wanted += part;
    }
  }
  if (!slices_.empty()) slices_.back().ends_piece = true;
}

void ReadAhead::open() {
  fd_ = ::open(file_.path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
  direct_ = fd_ >= 0;
  if (fd_ < 0 && errno == EINVAL) fd_ = ::open(file_.path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd_ < 0) fail_with_errno(file_, "open", "path and permissions");
  if (!direct_) ::posix_fadvise(fd_, 0, 0, POSIX_FADV_SEQUENTIAL);
}

/// The file system took O_DIRECT when the file was opened, and refuses it now.
void ReadAhead::read_buffered() {
  const std::lock_guard lock(mutex_);
  if (!direct_) return;
  const int buffered = ::open(file_.path.c_str(), O_RDONLY | O_CLOEXEC);
  if (buffered < 0) fail_with_errno(file_, "open", "path and permissions");
  direct_fd_ = fd_.exchange(buffered);
  direct_ = false;
  check_identity(fd_, file_);
}

/// Reads whole blocks, so that direct reads work; the file may end in the last of them.
void ReadAhead::fill(const Read& read, std::byte* piece) {
  const Bytes whole = round_up(read.bytes, kReadBlock);
  for (Bytes done = 0; done < read.bytes;) {
    const bool direct = direct_;
    const ssize_t got = pread_(fd_, piece + done, whole - done, static_cast<off_t>(read.offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EINVAL && direct) {
      read_buffered();
      continue;
    }
    if (got < 0) fail_with_errno(file_, "read", "the disk");
    done += static_cast<Bytes>(got);
    // A direct read stops inside a sector only where the file ends, and could not go on from there.
    const bool ended = got == 0 || (direct && static_cast<Bytes>(got) % kSector != 0);
    if (ended && done < read.bytes) fail_shorter(file_);
  }
  if (!direct_)
    ::posix_fadvise(fd_, static_cast<off_t>(read.offset), static_cast<off_t>(whole), POSIX_FADV_DONTNEED);
}

/// The next read, as soon as its piece is free; nothing when there is no more to do.
std::optional<std::size_t> ReadAhead::take_read() {
  std::unique_lock lock(mutex_);
  const auto over = [&] { return stop_ || error_ != nullptr || taken_ == reads_.size(); };
  changed_.wait(lock, [&] { return over() || taken_ < released_ + pieces_; });
  if (over()) return std::nullopt;
  return taken_++;
}

void ReadAhead::work() noexcept {
  while (const std::optional<std::size_t> read = take_read()) {
    std::exception_ptr error;
    try {
      fill(reads_[*read], ring_.data() + (*read % pieces_) * piece_bytes_);
    } catch (...) {
      error = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      ++completed_;
      try {
        // What comes last is handed out only if nobody wrote to the file meanwhile.
        if (!error && completed_ == reads_.size()) check_identity(fd_, file_);
      } catch (...) {
        error = std::current_exception();
      }
      if (!error) {
        bytes_read_ += reads_[*read].wanted;
        done_[*read] = true;
        while (filled_ < done_.size() && done_[filled_]) ++filled_;
      } else if (error_ == nullptr || *read < error_at_) {
        error_ = error;
        error_at_ = *read;
      }
    }
    changed_.notify_all();
  }
}

bool ReadAhead::ready() const {
  const std::lock_guard lock(mutex_);
  return next_slice_ == slices_.size() || slices_[next_slice_].read < filled_ ||
         (error_ != nullptr && error_at_ == filled_);
}

ReadAhead::Part ReadAhead::next() {
  if (next_slice_ == slices_.size()) throw std::logic_error("all of the order was taken");
  const Slice& slice = slices_[next_slice_];
  {
    std::unique_lock lock(mutex_);
    const auto failed = [&] { return error_ != nullptr && error_at_ == filled_; };
    changed_.wait(lock, [&] { return stop_ || slice.read < filled_ || failed(); });
    if (slice.read >= filled_) {
      if (failed()) std::rethrow_exception(error_);
      throw Cancelled("reading '" + file_.path.string() + "' was stopped");
    }
  }
  ++next_slice_;
  const std::byte* piece = ring_.data() + (slice.read % pieces_) * piece_bytes_;
  return {{piece + slice.offset, slice.bytes}, slice.ends_piece};
}

void ReadAhead::release() {
  {
    const std::lock_guard lock(mutex_);
    ++released_;
  }
  changed_.notify_all();
}

Bytes ReadAhead::bytes_read() const {
  const std::lock_guard lock(mutex_);
  return bytes_read_;
}

}  // namespace lowtide::memory
