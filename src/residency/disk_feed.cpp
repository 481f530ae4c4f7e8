#include "residency/disk_feed.hpp"

#include <cstring>
#include <utility>

#include "residency/transfers.hpp"

namespace lowtide::residency {

void DiskFeed::begin(std::span<const memory::Extent> order) {
  end();
  reader_ = std::make_unique<memory::ReadAhead>(file_, order, tier_.ring, tier_.piece_bytes);
}

void DiskFeed::end() noexcept {
  if (!reader_) return;
  tier_.bytes_read += reader_->bytes_read();
  reader_.reset();
  on_their_way_.clear();
}

Bytes DiskFeed::copy_next(std::byte* to, const std::optional<c10::Stream>& stream) {
  const memory::ReadAhead::Part part = reader_->next();
  if (!stream) {
    std::memcpy(to, part.bytes.data(), part.bytes.size());
    if (part.ends_piece) reader_->release();
    return part.bytes.size();
  }
  byte_tensor(to, part.bytes.size(), device_.torch())
      .copy_(byte_tensor(part.bytes.data(), part.bytes.size(), at::kCPU), /*non_blocking=*/true);
  if (part.ends_piece) {
    on_their_way_.emplace_back(device_.torch().type(), c10::EventFlag::BACKEND_DEFAULT).record(*stream);
    take_back_pieces();
  }
  return part.bytes.size();
}

/// Pieces whose copies are done are read into again. The reader always has half of the ring: the host may be
/// busy for long until it comes here again.
void DiskFeed::take_back_pieces() {
  while (!on_their_way_.empty()) {
    c10::Event& oldest = on_their_way_.front();
    if (!oldest.query()) {
      if (on_their_way_.size() <= reader_->pieces() / 2) return;
      oldest.synchronize();
    }
    on_their_way_.pop_front();
    reader_->release();
  }
}

}  // namespace lowtide::residency
