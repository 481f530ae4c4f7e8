#include "device/cuda/cuda_device.hpp"

#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#include <torch/csrc/CudaIPCTypes.h>

#include <algorithm>
#include <array>
#include <exception>

#include "device/cuda/card_description.hpp"
#include "lowtide/error.hpp"

namespace lowtide::device::cuda {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;
using c10::cuda::CUDAGuard;

/// Taken for a context where it cannot be measured: what recent drivers need, rounded up.
constexpr std::uint64_t kDeclaredContext = 512ULL << 20;

/// The allocator takes memory from the driver in segments of 2 MiB (requests up to 1 MiB), 20 MiB (up to 10
/// MiB) and multiples of 2 MiB. A plan leaves room for one partly used segment of each kind beside the bytes
/// it counts.
constexpr std::uint64_t kSegmentRounding = 24ULL << 20;

std::string bus_id_of(c10::DeviceIndex index) {
  std::array<char, 32> text{};
  C10_CUDA_CHECK(cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), index));
  return text.data();
}

int attribute(cudaDeviceAttr which, c10::DeviceIndex index) {
  int value = 0;
  if (cudaDeviceGetAttribute(&value, which, index) == cudaSuccess) return value;
  static_cast<void>(cudaGetLastError());
  return 0;
}

/// What LibTorch's allocator holds from the driver, the host program's memory included.
std::uint64_t allocator_reserved(c10::DeviceIndex index) {
  const auto stats = allocator::getDeviceStats(index);
  const auto aggregate = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return static_cast<std::uint64_t>(std::max<std::int64_t>(0, stats.reserved_bytes[aggregate].current));
}

std::uint64_t less(std::uint64_t from, std::uint64_t what) {
  return from - std::min(from, what);
}

}  // namespace

CudaDevice::CudaDevice(c10::DeviceIndex index)
    : index_(index), nvml_(bus_id_of(index)), jobs_(index), libraries_(index) {
  if (allocator::name() != "native")
    throw DeviceError("LibTorch's CUDA memory comes from the allocator '" + allocator::name() +
                      "', which has no private pools: unset PYTORCH_ALLOC_CONF's backend");
  cudaDeviceProp properties{};
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, index_));
  name_ = properties.name;
  total_ = properties.totalGlobalMem;
  cap_ = total_;
  const CUDAGuard on_device(index_);
  open_context();
  prepare_libraries();
  measure_libraries();
  planned_library_ = library_.load();
}

void CudaDevice::open_context() {
  const bool had_context = c10::cuda::hasPrimaryContext(index_);
  const std::optional<std::uint64_t> before = nvml_.used_bytes();
  C10_CUDA_CHECK(cudaFree(nullptr));  // makes the context
  source_ = nvml_.process_bytes() ? Source::process : nvml_.used_bytes() ? Source::device : Source::runtime;
  use_at_open_ = measured_use().value_or(0);
  reserved_at_open_ = allocator_reserved(index_);
  context_ = kDeclaredContext;
  if (source_ == Source::process && use_at_open_ > reserved_at_open_) {
    context_ = use_at_open_ - reserved_at_open_;
  } else if (source_ == Source::device && !had_context && before && use_at_open_ > *before) {
    context_ = use_at_open_ - *before;
  }
  context_ = std::min(context_, total_);
}

std::optional<std::uint64_t> CudaDevice::measured_use() const {
  switch (source_) {
    case Source::process:
      return nvml_.process_bytes();
    case Source::device:
      return nvml_.used_bytes();
    case Source::runtime:
      break;
  }
  std::size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) == cudaSuccess) return total - free;
  static_cast<void>(cudaGetLastError());
  return std::nullopt;
}

/// Handles belong to threads and workspaces to handles and streams, so this thread's are made before a job
/// may: they outlive it and must not come from its pool.
void CudaDevice::prepare_libraries() {
  libraries_.begin();
  try {
    static_cast<void>(at::cuda::getCurrentCUDABlasHandle());
    static_cast<void>(at::cuda::getCUDABlasLtWorkspace());
  } catch (...) {
    libraries_.end();
    throw;
  }
  libraries_.end();
}

void CudaDevice::measure_libraries() {
  const std::optional<std::uint64_t> use = measured_use();
  if (!use) return;  // keeps what was measured last
  const std::uint64_t grown = less(*use, use_at_open_);
  const std::uint64_t by_allocator = less(allocator_reserved(index_), reserved_at_open_);
  library_ = less(grown, by_allocator) + libraries_.counts().reserved;
}

DeviceFacts CudaDevice::facts() const {
  const CUDAGuard on_device(index_);
  DeviceFacts facts;
  int version = 0;
  static_cast<void>(cudaDriverGetVersion(&version));
  const std::string cuda =
      "CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  const std::optional<std::string> driver = nvml_.driver_version();
  facts.driver = driver ? *driver + " (" + cuda + ")" : cuda;
  facts.compute_capability = std::to_string(attribute(cudaDevAttrComputeCapabilityMajor, index_)) + "." +
                             std::to_string(attribute(cudaDevAttrComputeCapabilityMinor, index_));
  std::size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) == cudaSuccess) facts.free_bytes = free;
  facts.pin_limit_bytes = locks_.limit_bytes();
  return facts;
}

std::string CudaDevice::card_json() const {
  constexpr double kKilo = 1000;  // the driver tells clocks in kilohertz
  planned_library_ = library_.load();
  return describe_card({.name = name_,
                        .total_bytes = total_,
                        .context_bytes = context_ + planned_library_ + kSegmentRounding,
                        .major = attribute(cudaDevAttrComputeCapabilityMajor, index_),
                        .minor = attribute(cudaDevAttrComputeCapabilityMinor, index_),
                        .multiprocessors = attribute(cudaDevAttrMultiProcessorCount, index_),
                        .clock_hz = kKilo * attribute(cudaDevAttrClockRate, index_),
                        .memory_clock_hz = kKilo * attribute(cudaDevAttrMemoryClockRate, index_),
                        .memory_bus_bits = attribute(cudaDevAttrGlobalMemoryBusWidth, index_),
                        .link_bytes_per_s = nvml_.link_bytes_per_s()});
}

void CudaDevice::set_cap(std::uint64_t bytes) {
  if (bytes > total_)
    throw DeviceError("a cap of " + std::to_string(bytes) + " bytes exceeds the " + std::to_string(total_) +
                      " of '" + name_ + "'; lower the cap");
  cap_ = bytes;
}

/// The allocator's limit counts all segments of the process. The host program may keep what it has now; ours
/// get what the cap leaves. Where the host program has set a lower limit, that one holds.
void CudaDevice::limit_allocator() {
  const std::uint64_t others = less(allocator_reserved(index_), jobs_.counts().reserved);
  // By what the plan was told: kernels that libraries have loaded since must not refuse a job that was proved
  // to fit.
  const std::uint64_t ours = less(cap_, context_ + planned_library_);
  host_fraction_ = allocator::getMemoryFraction(index_);
  // Half a byte on top: the allocator rounds the product down.
  const double fraction = (static_cast<double>(others + ours) + 0.5) / static_cast<double>(total_);
  allocator::setMemoryFraction(std::min({1.0, host_fraction_, fraction}), index_);
}

void CudaDevice::enter_job() {
  const std::lock_guard lock(job_mutex_);
  if (settings_) throw DeviceError("'" + name_ + "' runs a job already: one at a time");
  const CUDAGuard on_device(index_);
  prepare_libraries();
  measure_libraries();
  jobs_.begin();
  try {
    settings_.emplace();
    limit_allocator();
  } catch (...) {
    settings_.reset();
    jobs_.end();
    throw;
  }
}

void CudaDevice::leave_job() noexcept {
  const std::lock_guard lock(job_mutex_);
  if (!settings_) return;
  jobs_.end();
  settings_.reset();
  try {
    const CUDAGuard on_device(index_);
    allocator::setMemoryFraction(host_fraction_, index_);
    measure_libraries();
  } catch (const std::exception&) {  // a broken device tells whoever uses it next
  }
}

bool CudaDevice::page_lock(void* data, std::size_t size) {
  const CUDAGuard on_device(index_);  // else the driver makes a context on the thread's current device
  return locks_.lock(data, size);
}

void CudaDevice::page_unlock(void* data) noexcept {
  locks_.unlock(data);
}

void CudaDevice::clear_error() noexcept {
  // Errors that break the context stay for ever: they must be seen, not waited for.
  for (int tries = 0; tries < 8 && cudaGetLastError() != cudaSuccess; ++tries) {
  }
}

void CudaDevice::note_copy(bool to_device, std::uint64_t bytes) {
  const std::lock_guard lock(traffic_mutex_);
  if (!to_device) {
    d2h_bytes_ += bytes;
    return;
  }
  h2d_bytes_ += bytes;
  ++h2d_copies_;
}

std::uint64_t CudaDevice::reachable_bytes() const {
  const CUDAGuard on_device(index_);
  std::size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return total_;
  }
  return std::min(total_, counters().reserved_bytes + free);
}

DeviceCounters CudaDevice::counters() const {
  const PoolCounts pool = jobs_.counts();
  DeviceCounters counters;
  counters.library_bytes = library_;
  const std::uint64_t fixed = context_ + counters.library_bytes;
  counters.used_bytes = fixed + pool.live;
  counters.peak_bytes = fixed + pool.live_peak;
  counters.reserved_bytes = fixed + pool.reserved;
  counters.reserved_peak_bytes = fixed + pool.reserved_peak;
  counters.live_peak_bytes = counters.peak_bytes;
  counters.driver_allocs = pool.driver_allocs;
  counters.pinned_bytes = locks_.bytes();
  const std::lock_guard lock(traffic_mutex_);
  counters.h2d_bytes = h2d_bytes_;
  counters.h2d_copies = h2d_copies_;
  counters.d2h_bytes = d2h_bytes_;
  return counters;
}

void CudaDevice::reset_counters() {
  const CUDAGuard on_device(index_);
  C10_CUDA_CHECK(cudaDeviceSynchronize());
  jobs_.reset_peaks();
  const std::lock_guard lock(traffic_mutex_);
  h2d_bytes_ = h2d_copies_ = d2h_bytes_ = 0;
}

void CudaDevice::trim() {
  const CUDAGuard on_device(index_);
  jobs_.trim();
  static_cast<void>(torch::CudaIPCCollect());
  measure_libraries();
}

}  // namespace lowtide::device::cuda
