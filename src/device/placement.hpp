// Planned places for what a running job asks for.
//
// A device that can be told where to put an allocation offers one region of its memory, counted as used as a
// whole while it is open. Whoever knows what a step is going to ask for (memory/activation_arena) answers
// each request with an offset in the region; everything else comes from the overflow region beside it.
#pragma once

#include <cstdint>

#include "lowtide/options.hpp"

namespace lowtide::device {

/// Called by the device under its own lock, from any thread that allocates; must neither throw nor allocate
/// device memory. All bytes are rounded to the device's granule.
class Placement {
 public:
  enum class Kind : std::uint8_t {
    foreign,    // not asked for by a step of the job: memory that may live long
    unplanned,  // of the job, but nobody foresaw it: overflow region
    occupied,   // planned, but what lay there before is not gone yet
    planned,    // at `offset` of the region
  };
  struct Answer {
    Kind kind = Kind::foreign;
    std::uint64_t offset = 0;
  };

  virtual ~Placement() = default;
  virtual Answer place(std::uint64_t bytes) noexcept = 0;
  /// The job's request was met with memory at `data`, in the region or beside it. After `foreign` answers it
  /// is not called.
  virtual void answered(const void* data, std::uint64_t bytes, const Answer& answer) noexcept = 0;
  /// Nobody uses the memory at `data` any more. Also called for memory that answered() has not seen.
  virtual void given_back(const void* data) noexcept = 0;
};

struct RegionOptions {
  std::uint64_t bytes = 0;  // 0: no region, but the placement is asked and told all the same
  ArenaGrowth growth = ArenaGrowth::same_as_requested;  // of the overflow region
  Placement* placement = nullptr;                       // outlives the region
};

}  // namespace lowtide::device
