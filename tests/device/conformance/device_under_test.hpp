// What the promises ask of a device, one virtual function for each thing a device can get wrong. This class
// does the true thing, through PyTorch's device-generic interfaces and DeviceExtras; a faulty device
// overrides one function.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstddef>
#include <functional>
#include <vector>

#include "device/device.hpp"

namespace lowtide::conformance {

using Tensors = std::vector<at::Tensor>;
using Operator = std::function<at::Tensor(const Tensors&)>;

/// Bytes as PyTorch's device-generic allocator counts them.
struct AllocatorView {
  std::uint64_t allocated = 0;
  std::uint64_t allocated_peak = 0;
  std::uint64_t reserved = 0;
  std::uint64_t free = 0;
};

class DeviceUnderTest {
 public:
  explicit DeviceUnderTest(device::Device device) : device_(device), guard_(device.torch().type()) {}
  DeviceUnderTest(const DeviceUnderTest&) = delete;
  DeviceUnderTest& operator=(const DeviceUnderTest&) = delete;
  virtual ~DeviceUnderTest() = default;

  // --- what it is; no device gets this wrong ---
  const device::Device& device() const { return device_; }
  c10::Device torch() const { return device_.torch(); }
  /// Null for the cpu, which promises nothing that needs them.
  device::DeviceExtras* extras() const { return device_.extras(); }
  /// How far below the cap an allocation of whole MiB may be refused: a GPU's allocator takes memory in
  /// segments.
  std::uint64_t cap_slack() const;
  c10::Stream default_stream() const { return guard_.getDefaultStream(torch()); }

  // --- memory ---
  virtual at::Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype);
  /// Drops the last reference.
  virtual void release(at::Tensor& tensor) { tensor.reset(); }
  /// Ends the present job and starts another: that is when a cap takes effect.
  virtual void set_cap(std::uint64_t bytes);
  /// Between two jobs: within one a GPU keeps what it has reserved.
  virtual void trim();

  // --- figures ---
  virtual device::DeviceCounters counters() { return extras()->counters(); }
  virtual void reset_counters() { extras()->reset_counters(); }
  virtual void start_window() { extras()->start_window(); }
  virtual std::uint64_t window_peak() { return extras()->window_peak(); }
  virtual AllocatorView allocator();

  // --- work ---
  virtual void copy(const at::Tensor& target, const at::Tensor& source, bool non_blocking);
  virtual at::Tensor move(const at::Tensor& tensor, c10::Device to) { return tensor.to(to); }
  virtual at::Tensor run(const Operator& op, const Tensors& inputs) { return op(inputs); }

  // --- order ---
  virtual c10::Stream new_stream() { return guard_.getStreamFromGlobalPool(torch()); }
  virtual c10::Stream current_stream() { return guard_.getStream(torch()); }
  virtual void record(c10::Event& event, const c10::Stream& stream) { event.record(stream); }
  virtual void wait(const c10::Stream& stream, c10::Event& event) { event.block(stream); }
  virtual bool happened(const c10::Event& event) { return event.query(); }
  virtual bool is_idle(const c10::Stream& stream) { return stream.query(); }
  virtual double elapsed_ms(const c10::Event& first, const c10::Event& second) {
    return first.elapsedTime(second);
  }
  virtual void synchronize(const c10::Event& event) { event.synchronize(); }
  virtual void synchronize(const c10::Stream& stream) { stream.synchronize(); }
  virtual void synchronize() { guard_.synchronizeDevice(torch().index()); }

  // --- page-locked host memory ---
  virtual bool page_lock(void* data, std::size_t size) { return extras()->page_lock(data, size); }
  virtual void page_unlock(void* data) { extras()->page_unlock(data); }
  virtual void clear_error() { extras()->clear_error(); }
  virtual bool is_pinned(const at::Tensor& host);

  // --- shorthands over the above ---
  /// A contiguous copy on the device, finished.
  at::Tensor to_device(const at::Tensor& host);
  /// A contiguous copy on the host, finished.
  at::Tensor to_host(const at::Tensor& tensor);
  at::Tensor empty_bytes(std::uint64_t bytes);
  std::uint64_t used() { return counters().used_bytes; }
  c10::Event new_event() const { return c10::Event(torch().type()); }
  /// One whose time can be told.
  c10::Event new_timed_event() const { return {torch().type(), c10::EventFlag::BACKEND_DEFAULT}; }

  // --- around a promise; always true ---
  /// Waits for everything.
  void finish() const;
  /// Brings the device into a known state: nothing pending, no cap, no error, no cache, peaks at the present
  /// level. Not within a job.
  void settle() const;
  /// What is allocated beside context and libraries.
  std::uint64_t live_bytes() const;

 private:
  device::Device device_;
  c10::impl::VirtualGuardImpl guard_;
};

/// Page-aligned host memory. Unlocked truly and after all work is done when it goes, whatever a faulty device
/// does.
class HostPages {
 public:
  static constexpr std::size_t kPage = 4096;

  HostPages(const DeviceUnderTest& device, std::size_t pages);
  HostPages(const HostPages&) = delete;
  HostPages& operator=(const HostPages&) = delete;
  ~HostPages();

  std::byte* page(std::size_t index) const { return data_ + index * kPage; }
  std::size_t size() const { return pages_ * kPage; }
  /// A tensor over memory at `data`, which it does not own.
  static at::Tensor over(std::byte* data, at::IntArrayRef sizes, at::ScalarType dtype);

 private:
  const device::Device device_;
  const std::size_t pages_;
  std::byte* const data_;
};

/// A page-locked host tensor with the content of `content`.
class PinnedTensor {
 public:
  PinnedTensor(DeviceUnderTest& device, const at::Tensor& content);
  const at::Tensor& tensor() const { return tensor_; }

 private:
  HostPages pages_;
  at::Tensor tensor_;
};

/// The bytes of a host tensor's elements in row-major order.
std::string bits(const at::Tensor& host);

}  // namespace lowtide::conformance
