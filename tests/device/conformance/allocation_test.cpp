// Promise: memory is given, counted and taken back, and the cap is a hard limit.
#include <ATen/ops/empty.h>
#include <doctest/doctest.h>

#include <algorithm>

#include "device/conformance/promise.hpp"
#include "lowtide/bytes.hpp"

using namespace lowtide;
using namespace lowtide::conformance;

namespace {

/// Odd ones, those around a granule, and one that is large.
constexpr std::uint64_t kSizes[] = {1, 3, 511, 512, 513, 4097, 1_MiB + 1, 20_MiB + 7};
/// No allocator takes more than this beside what was asked for.
constexpr std::uint64_t kRounding = 2_MiB;

void check_allocation(DeviceUnderTest& device, Checks& checks) {
  for (const std::uint64_t size : kSizes) {
    const std::string detail = std::to_string(size) + " bytes";
    at::Tensor tensor;
    const std::uint64_t before = device.used();
    checks.that("a tensor lies on the device it was asked for on", detail, [&] {
      tensor = device.empty_bytes(size);
      return tensor.device() == device.torch() && tensor.nbytes() == size;
    });
    const std::uint64_t taken = device.used() - before;
    checks.that("used memory grows by what was asked for", detail, [&] { return taken >= size; });
    checks.that("rounding takes little", detail, [&] { return taken <= size + kRounding; });
    checks.that("what is given back is used no longer", detail, [&] {
      device.release(tensor);
      return device.used() == before;
    });
  }
  checks.that("an empty tensor takes nothing", [&] {
    const std::uint64_t before = device.used();
    const at::Tensor none = device.empty({0}, at::kFloat), nothing = device.empty({3, 0, 2}, at::kLong);
    return device.used() == before && none.numel() == 0;
  });
  checks.that("live tensors share no memory", [&] {
    const at::Tensor first = device.empty_bytes(5000), second = device.empty_bytes(5000);
    const auto* a = static_cast<const std::byte*>(first.const_data_ptr());
    const auto* b = static_cast<const std::byte*>(second.const_data_ptr());
    return a + 5000 <= b || b + 5000 <= a;
  });
}
constexpr Promise kAllocation{"memory is counted while it lives, and given back whole", Needs::accounting,
                              &check_allocation};
LOWTIDE_PROMISE(kAllocation);

struct AllocatesOnTheHost : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  at::Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype) override {
    return at::empty(sizes, at::TensorOptions().dtype(dtype));
  }
};
LOWTIDE_SEEN_TO_FAIL("puts tensors into host memory", AllocatesOnTheHost, kAllocation,
                     "a tensor lies on the device it was asked for on");

struct RoundsOddSizesDown : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  device::DeviceCounters counters() override {
    device::DeviceCounters counters = extras()->counters();
    const std::uint64_t context = extras()->context_bytes();
    counters.used_bytes = context + (counters.used_bytes - context) / 1_MiB * 1_MiB;
    return counters;
  }
};
LOWTIDE_SEEN_TO_FAIL("rounds odd sizes down", RoundsOddSizesDown, kAllocation,
                     "used memory grows by what was asked for");

/// Keeps what it is told to keep until it goes.
struct Hoarder : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  void hoard(std::uint64_t bytes) {
    kept.push_back(DeviceUnderTest::empty({std::int64_t(bytes)}, at::kByte));
  }
  Tensors kept;
};

struct TakesThrice : Hoarder {
  using Hoarder::Hoarder;
  at::Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype) override {
    at::Tensor tensor = Hoarder::empty(sizes, dtype);
    hoard(2 * tensor.nbytes());
    return tensor;
  }
};
LOWTIDE_SEEN_TO_FAIL("takes three times what it was asked for", TakesThrice, kAllocation,
                     "rounding takes little");

struct ForgetsToFree : Hoarder {
  using Hoarder::Hoarder;
  void release(at::Tensor& tensor) override { kept.push_back(std::move(tensor)); }
};
LOWTIDE_SEEN_TO_FAIL("forgets to count a free", ForgetsToFree, kAllocation,
                     "what is given back is used no longer");

struct ChargesForNothing : Hoarder {
  using Hoarder::Hoarder;
  at::Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype) override {
    at::Tensor tensor = Hoarder::empty(sizes, dtype);
    if (tensor.numel() == 0) hoard(1);
    return tensor;
  }
};
LOWTIDE_SEEN_TO_FAIL("takes memory for empty tensors", ChargesForNothing, kAllocation,
                     "an empty tensor takes nothing");

struct HandsOutTheSameMemory : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  at::Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype) override {
    if (last.defined() && last.sizes() == sizes) return last.alias();
    return last = DeviceUnderTest::empty(sizes, dtype);
  }
  at::Tensor last;
};
LOWTIDE_SEEN_TO_FAIL("hands out the same memory twice", HandsOutTheSameMemory, kAllocation,
                     "live tensors share no memory");

// --- the cap ---

constexpr std::uint64_t kBlock = 16_MiB;  // whole segments of a GPU's allocator
constexpr std::size_t kBlocks = 4;

/// Allocates blocks until one is refused; a device that ignores its cap is stopped.
Tensors fill(DeviceUnderTest& device) {
  Tensors blocks;
  try {
    while (blocks.size() < 2 * kBlocks) blocks.push_back(device.empty_bytes(kBlock));
  } catch (const c10::Error&) {  // the type is another promise
  }
  return blocks;
}

void check_cap(DeviceUnderTest& device, Checks& checks) {
  const std::uint64_t before = device.used();
  for (const std::uint64_t missing : {std::uint64_t{0}, std::uint64_t{1}}) {
    // One byte less than room for four blocks is room for three.
    const std::uint64_t cap = before + kBlocks * kBlock - missing;
    const std::string detail = std::to_string(missing) + " bytes below four blocks";
    device.set_cap(cap);
    device.reset_counters();
    const Tensors blocks = fill(device);
    checks.that("used memory never passes the cap", detail,
                [&] { return device.used() <= cap && device.counters().peak_bytes <= cap; });
    checks.that("all memory below the cap is given", detail,
                [&] { return device.used() + kBlock + device.cap_slack() > cap; });
  }
  device.trim();
  const Tensors first = [&] {
    device.set_cap(before + kBlock + device.cap_slack());
    return fill(device);
  }();
  checks.that("raising the cap makes room at once", [&] {
    device.set_cap(before + 4 * kBlock + 2 * device.cap_slack());
    return device.empty_bytes(kBlock).defined();
  });
  checks.that("a cap below what is used is taken, and nothing more is given", [&] {
    device.trim();
    device.set_cap(device.used() - 1);
    return throws<c10::Error>([&] { device.empty_bytes(kBlock); });
  });
  checks.that("a cap beyond the memory of the device is refused", [&] {
    return throws<std::exception>([&] { device.set_cap(device.extras()->total_bytes() + 1); });
  });
}
constexpr Promise kCap{"the cap is a hard limit on used memory, and no lower than it says", Needs::accounting,
                       &check_cap};
LOWTIDE_PROMISE(kCap);

struct IgnoresTheCap : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  void set_cap(std::uint64_t bytes) override {
    DeviceUnderTest::set_cap(std::max(bytes, extras()->total_bytes()));
  }
};
LOWTIDE_SEEN_TO_FAIL("ignores the cap", IgnoresTheCap, kCap, "used memory never passes the cap",
                     "a cap below what is used is taken, and nothing more is given");

struct LeavesTheContextOutOfTheCap : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  void set_cap(std::uint64_t bytes) override {
    // beyond the card's memory it stays refused
    const std::uint64_t total = extras()->total_bytes();
    DeviceUnderTest::set_cap(bytes > total ? bytes : std::min(total, bytes + extras()->context_bytes()));
  }
};
LOWTIDE_SEEN_TO_FAIL("leaves its context out of the cap", LeavesTheContextOutOfTheCap, kCap,
                     "used memory never passes the cap");

struct StopsEarly : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  void set_cap(std::uint64_t bytes) override { DeviceUnderTest::set_cap(bytes / 2); }
};
LOWTIDE_SEEN_TO_FAIL("refuses memory long before the cap", StopsEarly, kCap,
                     "all memory below the cap is given");

struct OnlyLowersTheCap : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  void set_cap(std::uint64_t bytes) override { DeviceUnderTest::set_cap(lowest = std::min(lowest, bytes)); }
  std::uint64_t lowest = UINT64_MAX;
};
LOWTIDE_SEEN_TO_FAIL("never raises the cap again", OnlyLowersTheCap, kCap,
                     "raising the cap makes room at once");

struct TakesAnyCap : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  void set_cap(std::uint64_t bytes) override {
    DeviceUnderTest::set_cap(std::min(bytes, extras()->total_bytes()));
  }
};
LOWTIDE_SEEN_TO_FAIL("takes a cap beyond its memory", TakesAnyCap, kCap,
                     "a cap beyond the memory of the device is refused");

}  // namespace
