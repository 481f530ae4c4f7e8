// Reads parts of a file ahead of their use, in a given order, through a ring of memory: large sequential
// reads on threads of their own, past the page cache where the file system allows.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "lowtide/bytes.hpp"
#include "memory/checked_file.hpp"

namespace lowtide::memory {

/// A part of a file that is wanted.
struct Extent {
  Bytes offset = 0;  // in the file
  Bytes bytes = 0;

  bool operator==(const Extent&) const = default;
};

/// Reads start and end at multiples of this, and pieces of the ring begin at such addresses: direct reads
/// work in blocks.
inline constexpr Bytes kReadBlock = 4096;

/// One pass over the parts. Neighbours in the file that are neighbours in the order are read together, gaps
/// of a few blocks included, so no block is read twice but where the order jumps. All but the threads
/// inside and stop() is for one thread.
class ReadAhead {
 public:
  /// As ::pread. Tests inject failures through it.
  using Pread = ssize_t (*)(int file, void* to, std::size_t bytes, off_t offset);

  /// Opens the file and begins to read. `ring` is cut into pieces of `piece_bytes` (a multiple of kReadBlock;
  /// at least two pieces, starting at a multiple of kReadBlock) and must outlive this. Throws ArchiveError
  /// when the file cannot be opened or is not the one that was checked.
  ReadAhead(const FileIdentity& file, std::span<const Extent> order, std::span<std::byte> ring,
            Bytes piece_bytes, Pread pread = ::pread);
  /// Stops reading; waits for the reads in progress.
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  /// What comes next in the order: an extent or, where it is cut by pieces, a part of one.
  struct Part {
    std::span<const std::byte> bytes;
    bool ends_piece = false;  // nothing further lies in its piece of the ring
  };
  /// next() would not wait.
  bool ready() const;
  /// Bytes of the n-th part; std::out_of_range behind the last. From any thread.
  Bytes part_bytes(std::size_t n) const { return slices_.at(n).bytes; }
  /// The next part, waiting for it. Valid until its piece is released. Throws ArchiveError when the file
  /// cannot be read, became shorter or changed; Cancelled after stop(); std::logic_error when all was taken.
  Part next();
  /// The oldest piece that was taken in full and not yet released may be read into again. next() waits for
  /// ever if too few are.
  void release();
  /// Ends the reading: a next() that waits, or would, throws. From any thread.
  void stop() noexcept;

  /// Bytes of the order that were read from the file so far, taken or not.
  Bytes bytes_read() const;
  std::size_t pieces() const { return pieces_; }
  /// Past the page cache?
  bool direct() const { return direct_; }

 private:
  struct Read {  // into one piece
    Bytes offset = 0;
    Bytes bytes = 0;   // up to the end of the last part
    Bytes wanted = 0;  // of it, in parts
  };
  struct Slice {  // a part inside a read
    std::uint32_t read = 0;
    bool ends_piece = false;
    Bytes offset = 0;  // in the piece
    Bytes bytes = 0;
  };

  void arrange(std::span<const Extent> order);
  void open();
  /// Two, so that the disk has something to do while one of them waits for a core.
  static constexpr std::size_t kReaders = 2;

  std::optional<std::size_t> take_read();
  void work() noexcept;
  void fill(const Read& read, std::byte* piece);
  void read_buffered();
  void finish_threads() noexcept;

  FileIdentity file_;
  std::span<std::byte> ring_;
  Bytes piece_bytes_;
  std::size_t pieces_;
  Pread pread_;
  std::atomic<int> fd_{-1};
  int direct_fd_ = -1;  // that direct reads turned out not to work with
  std::atomic<bool> direct_{false};
  std::vector<Read> reads_;
  std::vector<Slice> slices_;
  std::size_t next_slice_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t taken_ = 0;  // reads that a thread has begun with
  std::size_t completed_ = 0;
  std::vector<bool> done_;    // per read
  std::size_t filled_ = 0;    // reads that are in memory with all before them
  std::size_t released_ = 0;  // of them, those whose piece is free again
  Bytes bytes_read_ = 0;
  std::exception_ptr error_;  // of the earliest read that failed
  std::size_t error_at_ = 0;
  bool stop_ = false;
  std::array<std::thread, kReaders> threads_;
};

}  // namespace lowtide::memory
