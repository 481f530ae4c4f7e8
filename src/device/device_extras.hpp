// What PyTorch's device-generic interface lacks, per device kind. Everything else (allocation, copies,
// streams, events, out-of-memory) goes through c10's generic interfaces, so the code that runs on the
// simulated card is the code that runs on a GPU.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "device/placement.hpp"

namespace lowtide::device {

/// Counters of a device since it was opened or since reset_counters(). Bytes and seconds.
struct DeviceCounters {
  std::uint64_t used_bytes = 0;      // context + live allocations
  std::uint64_t peak_bytes = 0;      // highest used_bytes
  std::uint64_t reserved_bytes = 0;  // context + what the allocator holds from the driver
  std::uint64_t reserved_peak_bytes = 0;
  /// Highest sum of context and what allocations hold: of an open region only what is taken of it.
  std::uint64_t live_peak_bytes = 0;
  std::uint64_t driver_allocs = 0;  // times the allocator had to ask the driver
  std::uint64_t library_bytes = 0;  // the part of all of the above that libraries hold, see library_bytes()
  std::uint64_t h2d_bytes = 0;
  std::uint64_t h2d_copies = 0;
  std::uint64_t d2h_bytes = 0;
  std::uint64_t pinned_bytes = 0;  // page-locked host memory, now
  double modelled_s = 0;           // latest of all virtual clocks; simulated card only
  double compute_s = 0;            // busy time of compute; simulated card only
  double link_s = 0;               // busy time of the link; simulated card only
  double stall_s = 0;              // compute waited for a copy; simulated card only
};

/// What a person wants to know about a device. Empty or absent where it does not apply or cannot be found
/// out.
struct DeviceFacts {
  std::string driver;                            // "580.65 (CUDA 13.0)"
  std::string compute_capability;                // "8.6"
  std::optional<std::uint64_t> free_bytes;       // of the whole device, now
  std::optional<std::uint64_t> pin_limit_bytes;  // of page-locked host memory, if the device sets one
};

/// Implemented once for the simulated card, once for CUDA. Thread-safe.
class DeviceExtras {
 public:
  virtual ~DeviceExtras() = default;

  virtual std::string name() const = 0;
  /// Memory of the card, context included.
  virtual std::uint64_t total_bytes() const = 0;
  /// What the device takes before the first allocation of ours.
  virtual std::uint64_t context_bytes() const = 0;
  /// What libraries hold beside our allocations (CUDA: lazily loaded kernels, cuBLAS); 0 on the simulated
  /// card.
  virtual std::uint64_t library_bytes() const = 0;
  virtual DeviceFacts facts() const = 0;
  /// The device described as a card (docs: configs/cards/): what the planner's cost model starts from.
  virtual std::string card_json() const = 0;

  /// Hard limit on used bytes, context included; beyond it allocations throw c10::OutOfMemoryError. At most
  /// total_bytes(). On CUDA it holds from the next enter_job() on.
  virtual void set_cap(std::uint64_t bytes) = 0;

  /// Page-locks `size` bytes at `data`. False when it is refused (limits). The device then remembers an error
  /// that would hit the next launch: call clear_error().
  virtual bool page_lock(void* data, std::size_t size) = 0;
  /// Undoes page_lock(data). Never fails; unknown pointers are ignored.
  virtual void page_unlock(void* data) noexcept = 0;
  /// Forgets the error of a refused call. Harmless when there is none.
  virtual void clear_error() noexcept = 0;

  /// From here to leave_job(), what this thread allocates on the device comes from memory of our own, apart
  /// from what the host program caches, and operators are deterministic. One job at a time.
  virtual void enter_job() = 0;
  virtual void leave_job() noexcept = 0;

  /// Opens the region for planned places; until close_region() the placement is asked for every allocation.
  /// False where the device cannot be told where to put things. Throws as an allocation of that size does,
  /// and has then opened nothing.
  virtual bool open_region(const RegionOptions& options) {
    static_cast<void>(options);
    return false;
  }
  /// Gives the region back as soon as the last allocation in it is gone. Harmless where none is open.
  virtual void close_region() noexcept {}

  /// Whoever issues a copy over the link says so, for devices that cannot count copies themselves.
  virtual void note_copy(bool to_device, std::uint64_t bytes) {
    static_cast<void>(to_device);
    static_cast<void>(bytes);
  }

  /// The host's time: the virtual one on the simulated card, else a steady clock's.
  virtual double host_seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  /// What this process could use in total by now, context included: what it holds and what is free. Other
  /// programs may have taken the rest.
  virtual std::uint64_t reachable_bytes() const = 0;

  virtual DeviceCounters counters() const = 0;
  /// Zeroes clocks and traffic counters; peaks start again at the present level. Finishes pending copies
  /// first.
  virtual void reset_counters() = 0;
  /// Starts a window over which window_peak() is measured; nested use is not supported.
  virtual void start_window() = 0;
  /// Highest used_bytes since start_window().
  virtual std::uint64_t window_peak() const = 0;

  /// Gives our cached memory back to the driver, so that reserved equals used, and collects memory that other
  /// processes have let go. Not between enter_job() and leave_job().
  virtual void trim() = 0;
  /// The same for what is held beyond `reserved_bytes`.
  virtual void trim_to(std::uint64_t reserved_bytes) { static_cast<void>(reserved_bytes); }
};

}  // namespace lowtide::device
