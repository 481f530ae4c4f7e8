// Vector clocks over the card's streams. No LibTorch here.
//
// Source: C. Fidge, "Timestamps in message-passing systems that preserve the partial ordering" (1988), and
// F. Mattern, "Virtual time and global states of distributed systems" (1989).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "device/sim/clocks.hpp"

namespace lowtide::device::sim {

/// How many pieces of work of each stream are known to be done: component s counts those of stream s.
class VectorClock {
 public:
  std::uint64_t operator[](StreamNumber stream) const { return ticks_[static_cast<std::size_t>(stream)]; }
  /// One more piece of the stream's own work.
  std::uint64_t advance(StreamNumber stream) { return ++ticks_[static_cast<std::size_t>(stream)]; }
  /// Knows afterwards what either knew.
  void join(const VectorClock& other) {
    for (std::size_t i = 0; i < ticks_.size(); ++i) ticks_[i] = std::max(ticks_[i], other.ticks_[i]);
  }

 private:
  std::array<std::uint64_t, kStreamCount> ticks_{};
};

}  // namespace lowtide::device::sim
