// Weights that stay in the archive file, on their way to a device: file -> ring of page-locked memory ->
// device, each byte read once, ahead of its use. On the cpu the slots are host memory, and a thread fills
// them.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "device/device.hpp"
#include "memory/read_ahead.hpp"
#include "memory/slot_filler.hpp"

namespace lowtide::residency {

/// What a session lends to whoever reads weights from disk; one at a time.
struct DiskTier {
  std::span<std::byte> ring;
  Bytes piece_bytes = 0;
  Bytes bytes_read = 0;  // counts what was read
};

/// Not thread-safe. Between begin() and end() it holds the ring.
class DiskFeed {
 public:
  /// `tier` must outlive it.
  DiskFeed(const device::Device& device, memory::FileIdentity file, DiskTier& tier);
  ~DiskFeed();
  DiskFeed(const DiskFeed&) = delete;
  DiskFeed& operator=(const DiskFeed&) = delete;

  /// Begins to read these parts of the file; they are then copied in this order. Throws ArchiveError.
  void begin(std::span<const memory::Extent> order);
  /// Stops reading, whatever is left. No copy may still be on its way: the device has been synchronised, or
  /// nothing was copied.
  void end() noexcept;
  /// Would copy_next() go on without waiting for the disk?
  bool ready() const;
  /// Queues the copy of the next bytes to `to`, on `stream` where the device has streams; there it waits for
  /// the disk first. Returns how many: never more than what is left of the present part of the order. Throws
  /// ArchiveError.
  Bytes copy_next(std::byte* to, const std::optional<c10::Stream>& stream);

  /// Without streams: how many copies were queued, and a wait for the first `copies` of them. Throws
  /// ArchiveError.
  std::size_t queued() const;
  void wait_for(std::size_t copies);

 private:
  void take_back_pieces();

  device::Device device_;
  memory::FileIdentity file_;
  DiskTier& tier_;
  std::unique_ptr<memory::ReadAhead> reader_;
  std::unique_ptr<memory::SlotFiller> filler_;  // without streams
  std::deque<c10::Event> on_their_way_;         // copies out of pieces, oldest first
};

}  // namespace lowtide::residency
