#include "device/conformance/device_under_test.hpp"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <stdexcept>

#include "lowtide/bytes.hpp"

namespace lowtide::conformance {
namespace {

void finish(const device::Device& device) {
  // The cpu's guard refuses it, and nothing is ever pending there.
  if (device.extras() != nullptr)
    c10::impl::VirtualGuardImpl(device.torch().type()).synchronizeDevice(device.torch().index());
}

/// Interrupts the job that every promise runs in.
template <class Action>
void between_jobs(device::DeviceExtras& extras, Action action) {
  extras.leave_job();
  try {
    action();
  } catch (...) {
    extras.enter_job();
    throw;
  }
  extras.enter_job();
}

std::byte* allocate_pages(std::size_t bytes) {
  void* data = std::aligned_alloc(HostPages::kPage, bytes);
  if (data == nullptr) throw std::bad_alloc();
  return static_cast<std::byte*>(data);
}

}  // namespace

std::uint64_t DeviceUnderTest::cap_slack() const {
  return device_.kind() == device::DeviceKind::cuda ? 32_MiB : 0;
}

at::Tensor DeviceUnderTest::empty(at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::empty(sizes, at::TensorOptions().device(torch()).dtype(dtype));
}

at::Tensor DeviceUnderTest::empty_bytes(std::uint64_t bytes) {
  return empty({static_cast<std::int64_t>(bytes)}, at::kByte);
}

void DeviceUnderTest::set_cap(std::uint64_t bytes) {
  between_jobs(*extras(), [&] { extras()->set_cap(bytes); });
}

void DeviceUnderTest::trim() {
  between_jobs(*extras(), [&] { extras()->trim(); });
}

AllocatorView DeviceUnderTest::allocator() {
  auto* allocator = c10::getDeviceAllocator(torch().type());
  const auto stats = allocator->getDeviceStats(torch().index());
  const auto bytes = [](const c10::CachingAllocator::StatArray& stat) {
    return static_cast<std::uint64_t>(stat[0].current);
  };
  return {.allocated = bytes(stats.allocated_bytes),
          .allocated_peak = static_cast<std::uint64_t>(stats.allocated_bytes[0].peak),
          .reserved = bytes(stats.reserved_bytes),
          .free = allocator->getMemoryInfo(torch().index()).first};
}

void DeviceUnderTest::copy(const at::Tensor& target, const at::Tensor& source, bool non_blocking) {
  target.copy_(source, non_blocking);
}

bool DeviceUnderTest::is_pinned(const at::Tensor& host) {
  // Tensor::is_pinned() asks the process's one accelerator, which is the simulated card once that is open.
  return at::globalContext().isPinnedPtr(host.const_data_ptr(), torch().type());
}

at::Tensor DeviceUnderTest::to_device(const at::Tensor& host) {
  at::Tensor target = empty(host.sizes(), host.scalar_type());
  copy(target, host, /*non_blocking=*/false);
  return target;
}

at::Tensor DeviceUnderTest::to_host(const at::Tensor& tensor) {
  at::Tensor target = at::empty(tensor.sizes(), at::TensorOptions().dtype(tensor.scalar_type()));
  copy(target, tensor, /*non_blocking=*/false);
  return target;
}

void DeviceUnderTest::finish() const {
  conformance::finish(device_);
}

void DeviceUnderTest::settle() const {
  if (extras() == nullptr) return;
  finish();
  extras()->set_cap(extras()->total_bytes());
  extras()->trim();
  extras()->reset_counters();
  extras()->clear_error();
}

std::uint64_t DeviceUnderTest::live_bytes() const {
  if (extras() == nullptr) return 0;
  const device::DeviceCounters counters = extras()->counters();
  return counters.used_bytes - extras()->context_bytes() - counters.library_bytes;
}

HostPages::HostPages(const DeviceUnderTest& device, std::size_t pages)
    : device_(device.device()), pages_(pages), data_(allocate_pages(pages * kPage)) {}

HostPages::~HostPages() {
  try {
    finish(device_);
  } catch (const std::exception&) {  // a device that fails here has failed a check before
  }
  if (device_.extras() != nullptr) {
    for (std::size_t i = 0; i < pages_; ++i) device_.extras()->page_unlock(page(i));
  }
  std::free(data_);
}

at::Tensor HostPages::over(std::byte* data, at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::from_blob(data, sizes, at::TensorOptions().dtype(dtype));
}

PinnedTensor::PinnedTensor(DeviceUnderTest& device, const at::Tensor& content)
    : pages_(device, (std::max<std::size_t>(content.nbytes(), 1) + HostPages::kPage - 1) / HostPages::kPage) {
  if (!device.page_lock(pages_.page(0), pages_.size()))
    throw std::runtime_error("the device refused to page-lock " + std::to_string(pages_.size()) + " bytes");
  tensor_ = HostPages::over(pages_.page(0), content.sizes(), content.scalar_type());
  tensor_.copy_(content);
}

std::string bits(const at::Tensor& host) {
  const at::Tensor row_major = host.resolve_conj().resolve_neg().contiguous();
  const auto* data = static_cast<const char*>(row_major.const_data_ptr());
  return row_major.numel() == 0 ? std::string() : std::string(data, row_major.nbytes());
}

}  // namespace lowtide::conformance
