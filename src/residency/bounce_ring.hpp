// Brings bytes from memory that is not page-locked to the device, through a few pieces that are.
//
// A copy from pageable memory blocks the host for its whole length and uses half of the link. Through the
// ring the host only copies into page-locked memory, and the link works meanwhile.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <vector>

#include "device/device.hpp"
#include "memory/host_slab.hpp"

namespace lowtide::residency {

/// Not thread-safe. Its memory is taken at the first copy.
class BounceRing {
 public:
  /// `largest`: the largest copy that is to come.
  BounceRing(const device::Device& device, Bytes largest) : device_(device), largest_(largest) {}

  /// Queues the copy on `stream`; `from` may change afterwards. Waits for the stream where all pieces are in
  /// use. Where the system refuses to lock even the ring, copies from `from` itself, which blocks.
  void copy(const std::byte* from, std::byte* to, Bytes bytes, const c10::Stream& stream);

 private:
  struct Piece {
    memory::HostSlab slab;
    c10::Event done;
    bool used = false;
  };

  void make_pieces();

  device::Device device_;
  Bytes largest_;
  std::vector<Piece> pieces_;
  std::size_t next_ = 0;
  bool made_ = false;
};

}  // namespace lowtide::residency
