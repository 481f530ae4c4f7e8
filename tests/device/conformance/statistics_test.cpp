// Promise: the figures of the device are true and agree with each other.
#include <doctest/doctest.h>

#include <algorithm>

#include "device/conformance/promise.hpp"
#include "lowtide/bytes.hpp"

using namespace lowtide;
using namespace lowtide::conformance;
using device::DeviceCounters;

namespace {

constexpr std::uint64_t kBlock = 24_MiB;  // whole segments of a GPU's allocator

// --- used, peak, reserved ---

void check_levels(DeviceUnderTest& device, Checks& checks) {
  device.reset_counters();
  const DeviceCounters start = device.counters();
  checks.that("used memory starts with the context",
              [&] { return start.used_bytes >= device.extras()->context_bytes(); });
  at::Tensor first = device.empty_bytes(kBlock), second = device.empty_bytes(kBlock);
  const DeviceCounters high = device.counters();
  device.release(first);
  device.release(second);
  const DeviceCounters after = device.counters();
  checks.that("the peak is the highest level, also when it has passed", [&] {
    return start.peak_bytes == start.used_bytes && high.peak_bytes == high.used_bytes &&
           after.peak_bytes == high.used_bytes;
  });
  checks.that("reserved memory covers what is used", [&] {
    return start.reserved_bytes >= start.used_bytes && high.reserved_bytes >= high.used_bytes &&
           high.reserved_bytes >= start.used_bytes + 2 * kBlock;
  });
  checks.that("reserved memory has a peak of its own", [&] {
    device.trim();
    return device.counters().reserved_bytes < high.reserved_bytes &&
           device.counters().reserved_peak_bytes >= high.reserved_bytes;
  });
  device.reset_counters();
  checks.that("after a reset the peaks start again at the present level", [&] {
    const DeviceCounters now = device.counters();
    return now.peak_bytes == now.used_bytes && now.reserved_peak_bytes == now.reserved_bytes;
  });
}
constexpr Promise kLevels{"used, peak and reserved memory are told as they are", Needs::accounting,
                          &check_levels};
LOWTIDE_PROMISE(kLevels);

struct Miscounter : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  DeviceCounters counters() override {
    DeviceCounters counters = extras()->counters();
    distort(counters);
    return counters;
  }
  virtual void distort(DeviceCounters& counters) = 0;
};

struct LeavesOutItsContext : Miscounter {
  using Miscounter::Miscounter;
  void distort(DeviceCounters& counters) override { counters.used_bytes -= extras()->context_bytes(); }
};
LOWTIDE_SEEN_TO_FAIL("leaves its context out of used memory", LeavesOutItsContext, kLevels,
                     "used memory starts with the context");

struct ForgetsThePeak : Miscounter {
  using Miscounter::Miscounter;
  void distort(DeviceCounters& counters) override { counters.peak_bytes = counters.used_bytes; }
};
LOWTIDE_SEEN_TO_FAIL("forgets the peak when memory is freed", ForgetsThePeak, kLevels,
                     "the peak is the highest level, also when it has passed");

struct ReservesTooLittle : Miscounter {
  using Miscounter::Miscounter;
  void distort(DeviceCounters& counters) override { counters.reserved_bytes = extras()->context_bytes(); }
};
LOWTIDE_SEEN_TO_FAIL("tells only its context as reserved", ReservesTooLittle, kLevels,
                     "reserved memory covers what is used");

struct ForgetsTheReservedPeak : Miscounter {
  using Miscounter::Miscounter;
  void distort(DeviceCounters& counters) override { counters.reserved_peak_bytes = counters.reserved_bytes; }
};
LOWTIDE_SEEN_TO_FAIL("forgets the peak of reserved memory", ForgetsTheReservedPeak, kLevels,
                     "reserved memory has a peak of its own");

struct NeverResetsThePeak : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  void reset_counters() override {}
};
LOWTIDE_SEEN_TO_FAIL("does not reset its peaks", NeverResetsThePeak, kLevels,
                     "after a reset the peaks start again at the present level");

// --- windows ---

void check_windows(DeviceUnderTest& device, Checks& checks) {
  device.reset_counters();
  const std::uint64_t base = device.used();
  const auto peak_of = [&](std::uint64_t bytes) {
    device.start_window();
    at::Tensor tensor = device.empty_bytes(bytes);
    const std::uint64_t level = device.used();
    device.release(tensor);
    return level == device.window_peak();
  };
  checks.that("the peak of a window is the highest level in it", [&] { return peak_of(2 * kBlock); });
  checks.that("a new window forgets the last one", [&] { return peak_of(kBlock); });
  checks.that("a window without allocations peaks at the present level", [&] {
    const at::Tensor held = device.empty_bytes(kBlock);
    device.start_window();
    return device.window_peak() == device.used();
  });
  checks.that("windows leave the overall peak alone",
              [&] { return device.counters().peak_bytes >= base + 2 * kBlock; });
}
constexpr Promise kWindows{"the peak can be measured over a window", Needs::accounting, &check_windows};
LOWTIDE_PROMISE(kWindows);

struct MissesWhatPasses : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  std::uint64_t window_peak() override { return used(); }
};
LOWTIDE_SEEN_TO_FAIL("tells the present level as the window's peak", MissesWhatPasses, kWindows,
                     "the peak of a window is the highest level in it");

struct NeverStartsANewWindow : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  void start_window() override {}
};
LOWTIDE_SEEN_TO_FAIL("never starts a new window", NeverStartsANewWindow, kWindows,
                     "a new window forgets the last one",
                     "a window without allocations peaks at the present level");

struct ResetsThePeakWithTheWindow : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  void start_window() override { reset_counters(); }
};
LOWTIDE_SEEN_TO_FAIL("starts its peak again with every window", ResetsThePeakWithTheWindow, kWindows,
                     "windows leave the overall peak alone");

// --- the driver ---

void check_driver_allocations(DeviceUnderTest& device, Checks& checks) {
  device.trim();
  device.reset_counters();
  const auto asked = [&] {
    const std::uint64_t before = device.counters().driver_allocs;
    at::Tensor tensor = device.empty_bytes(kBlock);
    device.release(tensor);
    return device.counters().driver_allocs - before;
  };
  checks.that("memory that is not there yet comes from the driver", [&] { return asked() > 0; });
  checks.that("the same again needs no driver", [&] { return asked() == 0; });
  device.reset_counters();
  checks.that("a reset starts the count again", [&] { return device.counters().driver_allocs == 0; });
}
constexpr Promise kDriver{"calls of the driver for memory are counted, and rare", Needs::accounting,
                          &check_driver_allocations};
LOWTIDE_PROMISE(kDriver);

struct CountsNoDriverCalls : Miscounter {
  using Miscounter::Miscounter;
  void distort(DeviceCounters& counters) override { counters.driver_allocs = 0; }
};
LOWTIDE_SEEN_TO_FAIL("does not count calls of the driver", CountsNoDriverCalls, kDriver,
                     "memory that is not there yet comes from the driver");

struct CachesNothing : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  void release(at::Tensor& tensor) override {
    tensor.reset();
    trim();
  }
};
LOWTIDE_SEEN_TO_FAIL("returns all memory to the driver at once", CachesNothing, kDriver,
                     "the same again needs no driver");

struct NeverResetsTheCount : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  void reset_counters() override {}
};
LOWTIDE_SEEN_TO_FAIL("does not reset the count of driver calls", NeverResetsTheCount, kDriver,
                     "a reset starts the count again");

// --- PyTorch's view ---

void check_allocator(DeviceUnderTest& device, Checks& checks) {
  device.trim();
  device.reset_counters();
  const DeviceCounters before = device.counters();
  const AllocatorView before_there = device.allocator();
  at::Tensor tensor = device.empty_bytes(kBlock);
  const DeviceCounters now = device.counters();
  const AllocatorView there = device.allocator();
  checks.that("used memory grows by the same there",
              [&] { return there.allocated - before_there.allocated == now.used_bytes - before.used_bytes; });
  checks.that("reserved memory grows by the same there", [&] {
    return there.reserved - before_there.reserved == now.reserved_bytes - before.reserved_bytes;
  });
  checks.that("free memory shrinks there", [&] { return there.free + kBlock <= before_there.free; });
  device.release(tensor);
  checks.that("the peak stays there", [&] { return device.allocator().allocated_peak >= there.allocated; });
}
constexpr Promise kAllocator{"PyTorch's own allocator statistics tell the same", Needs::accounting,
                             &check_allocator};
LOWTIDE_PROMISE(kAllocator);

struct HidesAllocations : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  AllocatorView allocator() override {
    AllocatorView view = DeviceUnderTest::allocator();
    return {.allocated_peak = view.allocated_peak, .free = extras()->total_bytes()};
  }
};
LOWTIDE_SEEN_TO_FAIL("tells PyTorch nothing of its allocations", HidesAllocations, kAllocator,
                     "used memory grows by the same there", "reserved memory grows by the same there",
                     "free memory shrinks there");

struct ForgetsPyTorchsPeak : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  AllocatorView allocator() override {
    AllocatorView view = DeviceUnderTest::allocator();
    view.allocated_peak = view.allocated;
    return view;
  }
};
LOWTIDE_SEEN_TO_FAIL("tells PyTorch the present level as its peak", ForgetsPyTorchsPeak, kAllocator,
                     "the peak stays there");

}  // namespace
