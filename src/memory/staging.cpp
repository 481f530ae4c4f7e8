#include "memory/staging.hpp"

#include <algorithm>

#include "base/checked_math.hpp"
#include "lowtide/log.hpp"

namespace lowtide::memory {
namespace {

constexpr Bytes kAlignment = 64;
/// Page locks are slow calls: many small pieces share one.
constexpr Bytes kSmallestSlab = 256 * 1024;

}  // namespace

void Staging::grow(Bytes bytes) {
  slabs_.emplace_back(bytes, *extras_);
  filled_ = 0;
  if (!slabs_.back().locked())
    log_message(LogLevel::warning, "the system refused to page-lock " + format_bytes(bytes) +
                                       " for transfers: inputs and results travel slower; raise the limit "
                                       "(ulimit -l) or close other programs");
}

std::byte* Staging::take(Bytes bytes) {
  const Bytes rounded = round_up(std::max<Bytes>(bytes, 1), kAlignment);
  if (slabs_.empty() || slabs_.back().bytes() - filled_ < rounded)
    grow(std::max({rounded, kSmallestSlab, used_}));  // doubles what is there
  std::byte* piece = slabs_.back().data() + filled_;
  filled_ += rounded;
  used_ += rounded;
  return piece;
}

void Staging::reset() {
  if (slabs_.size() > 1) {
    slabs_.clear();
    grow(used_);
  }
  filled_ = 0;
  used_ = 0;
}

}  // namespace lowtide::memory
