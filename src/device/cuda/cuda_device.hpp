// One GPU: what c10's generic interfaces lack. docs/cuda.md says what is measured where.
//
// Streams: weights are copied on a stream of their own into a slab that LibTorch's allocator believes to
// belong to the compute stream alone, without record_stream. That is safe because events order every use
// (residency_manager.hpp: compute waits for arrivals, the copy stream waits for the last use of a slot), and
// because the slab is freed, and new memory taken for it, only after the whole device has been synchronised
// at the end of a job. record_stream would delay the free by an event of its own and make the level after a
// job depend on when somebody asks.
#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <mutex>
#include <optional>

#include "device/cuda/job_settings.hpp"
#include "device/cuda/nvml.hpp"
#include "device/cuda/page_locks.hpp"
#include "device/cuda/private_pool.hpp"
#include "device/device_extras.hpp"

namespace lowtide::device::cuda {

/// Lives as long as the process. Throws DeviceError or c10::Error from the constructor when the device cannot
/// be used.
class CudaDevice final : public DeviceExtras {
 public:
  /// Makes the context and cuBLAS's handle of this thread, and measures what they take. CUDA must be
  /// initialised in LibTorch.
  explicit CudaDevice(c10::DeviceIndex index);

  std::string name() const override { return name_; }
  std::uint64_t total_bytes() const override { return total_; }
  std::uint64_t context_bytes() const override { return context_; }
  std::uint64_t library_bytes() const override { return library_; }
  DeviceFacts facts() const override;
  std::string card_json() const override;

  void set_cap(std::uint64_t bytes) override;
  bool page_lock(void* data, std::size_t size) override;
  void page_unlock(void* data) noexcept override;
  void clear_error() noexcept override;
  void enter_job() override;
  void leave_job() noexcept override;
  void note_copy(bool to_device, std::uint64_t bytes) override;

  std::uint64_t reachable_bytes() const override;
  DeviceCounters counters() const override;
  void reset_counters() override;
  void start_window() override { jobs_.start_window(); }
  std::uint64_t window_peak() const override { return context_ + library_ + jobs_.counts().window_peak; }
  void trim() override;

 private:
  /// Device memory in use: by this process where the driver tells, else by everybody. Nothing where no one
  /// tells, such as after an error that broke the context.
  std::optional<std::uint64_t> measured_use() const;
  void open_context();
  void prepare_libraries();
  void measure_libraries();
  void limit_allocator();

  const c10::DeviceIndex index_;
  std::string name_;
  std::uint64_t total_ = 0;
  Nvml nvml_;
  PageLocks locks_;

  enum class Source { process, device, runtime } source_ = Source::runtime;
  std::uint64_t context_ = 0;
  std::uint64_t use_at_open_ = 0;       // by source_, with the context
  std::uint64_t reserved_at_open_ = 0;  // by LibTorch's allocator: the host program's
  std::atomic<std::uint64_t> library_{0};
  mutable std::atomic<std::uint64_t> planned_library_{0};  // what the plan was told: card_json()
  std::atomic<std::uint64_t> cap_{0};

  PrivatePool jobs_;       // slab, activations, operators' workspace
  PrivatePool libraries_;  // cuBLAS's workspaces, which outlive jobs

  std::mutex job_mutex_;
  std::optional<JobSettings> settings_;
  double host_fraction_ = 1;

  mutable std::mutex traffic_mutex_;
  std::uint64_t h2d_bytes_ = 0, h2d_copies_ = 0, d2h_bytes_ = 0;
};

}  // namespace lowtide::device::cuda
