// A pool of device memory of our own inside LibTorch's caching allocator, and exact counts of it.
//
// The counts come from the allocator's own trace of events, by pool: they are what it did, and they leave the
// host program's memory and its statistics alone.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include <cstdint>
#include <vector>

namespace lowtide::device::cuda {

/// Bytes of one pool. Live sizes are rounded up to the allocator's 512 bytes, as the plan's are.
struct PoolCounts {
  std::uint64_t live = 0;
  std::uint64_t live_peak = 0;
  std::uint64_t window_peak = 0;
  std::uint64_t reserved = 0;  // segments held from the driver
  std::uint64_t reserved_peak = 0;
  std::uint64_t driver_allocs = 0;  // segments asked for since the peaks were reset
};

/// Lives as long as the process: the allocator's callback points to it. Counts are thread-safe; begin, end
/// and trim are for one thread at a time.
class PrivatePool {
 public:
  /// The allocator of `device` must be initialised.
  explicit PrivatePool(c10::DeviceIndex device);
  PrivatePool(const PrivatePool&) = delete;
  PrivatePool& operator=(const PrivatePool&) = delete;

  /// From here to end() this thread's allocations on the device come from this pool.
  void begin();
  void end() noexcept;

  /// Gives unused segments back to the driver. The allocator does that only for pools that nobody will use
  /// again, so the pool is replaced by a fresh one; memory that is still live goes with a later call. Does
  /// nothing while a CUDA graph is being captured. Not between begin() and end().
  void trim();

  PoolCounts counts() const;
  void reset_peaks();
  void start_window();

 private:
  c10::DeviceIndex device_;
  c10::MempoolId_t id_;
  std::vector<c10::MempoolId_t> retired_;  // replaced, not yet empty
};

}  // namespace lowtide::device::cuda
