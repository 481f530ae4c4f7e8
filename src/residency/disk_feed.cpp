#include "residency/disk_feed.hpp"

#include <utility>

#include "residency/transfers.hpp"

namespace lowtide::residency {

DiskFeed::DiskFeed(const device::Device& device, memory::FileIdentity file, DiskTier& tier)
    : device_(device), file_(std::move(file)), tier_(tier) {}

DiskFeed::~DiskFeed() {
  end();
}

void DiskFeed::begin(std::span<const memory::Extent> order) {
  end();
  reader_ = std::make_unique<memory::ReadAhead>(file_, order, tier_.ring, tier_.piece_bytes);
  if (device_.in_place()) filler_ = std::make_unique<memory::SlotFiller>(*reader_);
}

void DiskFeed::end() noexcept {
  if (!reader_) return;
  filler_.reset();
  tier_.bytes_read += reader_->bytes_read();
  reader_.reset();
  on_their_way_.clear();
}

bool DiskFeed::ready() const {
  return filler_ || reader_->ready();
}

std::size_t DiskFeed::queued() const {
  return filler_ ? filler_->added() : 0;
}

void DiskFeed::wait_for(std::size_t copies) {
  if (filler_) filler_->wait_for(copies);
}

Bytes DiskFeed::copy_next(std::byte* to, const std::optional<c10::Stream>& stream) {
  if (filler_) {
    const Bytes bytes = reader_->part_bytes(filler_->added());
    filler_->add(to);
    return bytes;
  }
  const memory::ReadAhead::Part part = reader_->next();
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
