// Finds work that touches memory without being ordered after the earlier work that it depends on: a read
// after another stream's write, a write after another stream's read or write, memory given back while another
// stream still works on it. On a GPU such programs are right most of the time; here they fail every time. No
// LibTorch here.
//
// What orders two pieces of work: being on one stream; an event recorded after the first and waited for by
// the second's stream; the host waiting for the first before it submits the second. Host threads count as
// one: they are expected to order themselves.
//
// Memory is seen as PyTorch's CUDA allocator hands it out: a block belongs to the stream on which it was
// allocated and goes back to that stream's pool, where the stream's next allocation may take it at once. So a
// new block may still be in use by earlier work of its own stream, and work of another stream must be ordered
// after the allocation, and before the release unless the stream was recorded for the block (record_stream).
//
// A tensor counts as all bytes from its first to its last element, gaps included.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "device/sim/clocks.hpp"
#include "device/sim/vector_clock.hpp"

namespace lowtide::device::sim {

/// Bytes that a piece of work reads or writes.
struct MemoryRange {
  const void* begin = nullptr;
  std::size_t bytes = 0;
};

/// What was done to some bytes, by which piece of work. The texts live as long as the process.
struct MemoryUse {
  StreamNumber stream = kDefaultStream;
  std::uint64_t tick = 0;  // the work's place on its stream, from 1; 0 = never used
  bool writes = false;
  const char* work = "";      // "aten::linear", "a copy to the card"
  const char* argument = "";  // "weight"; empty for results and copies
};

/// Not thread-safe: SimCard guards it.
class RaceChecker {
 public:
  /// Forgets everything. Off: only the order is followed, no memory.
  void restart(bool enabled);

  /// A piece of work is submitted; its place on its stream.
  std::uint64_t submit(StreamNumber stream);
  /// The newest piece of work of `use.stream` touches `range`. The earlier use that it is not ordered after,
  /// if there is one; later uses are compared with this one all the same.
  std::optional<MemoryUse> touch(MemoryRange range, const MemoryUse& use);
  /// The host touches memory itself, now.
  std::optional<MemoryUse> host_touches(MemoryRange range, bool writes);

  void allocated(MemoryRange range, StreamNumber stream);
  /// The block goes back to the pool of `stream`. `recorded` has a bit for each stream that the allocator
  /// waits for itself. Returns a use that the stream is not ordered after.
  std::optional<MemoryUse> released(MemoryRange range, StreamNumber stream, std::uint64_t recorded);
  /// Nothing may still use the memory (page-locked memory is unlocked). Returns a use that the host has not
  /// waited for.
  std::optional<MemoryUse> retired(MemoryRange range);

  /// What the stream knows to be done, its own work included.
  const VectorClock& clock(StreamNumber stream) const { return streams_[static_cast<std::size_t>(stream)]; }
  void stream_waits(StreamNumber stream, const VectorClock& clock);
  void host_waits(const VectorClock& clock);
  void host_waits_for_all();

  /// "the default stream", "stream 3".
  static std::string name(StreamNumber stream);
  /// "its write by aten::linear (argument 'weight') on stream 3".
  static std::string describe(const MemoryUse& use);

 private:
  /// Uses of a range of bytes since its last write: that write, and the last read of each stream.
  struct Uses {
    std::uintptr_t end = 0;
    MemoryUse write;
    std::vector<MemoryUse> reads;
  };
  using Shadow = std::map<std::uintptr_t, Uses>;

  bool ordered(const MemoryUse& earlier, const VectorClock& clock) const {
    return earlier.tick <= clock[earlier.stream];
  }
  /// The first use in `uses` that `clock` does not know; reads count when `writes`.
  std::optional<MemoryUse> unordered(const Uses& uses, const VectorClock& clock, bool writes) const;
  /// Makes range borders of `at` where it lies inside a range.
  void split(std::uintptr_t at);
  Shadow::iterator first_overlap(std::uintptr_t begin);
  std::optional<MemoryUse> forget(MemoryRange range, const VectorClock& clock, std::uint64_t excused);
  void note_read(Uses& uses, const MemoryUse& use);

  bool enabled_ = true;
  Shadow shadow_;  // by first byte; ranges never overlap
  std::vector<VectorClock> streams_ = std::vector<VectorClock>(kStreamCount);
  std::vector<std::uint64_t> host_seen_ = std::vector<std::uint64_t>(kStreamCount);  // host_version_ joined
  VectorClock host_;
  std::uint64_t host_version_ = 0;
};

}  // namespace lowtide::device::sim
