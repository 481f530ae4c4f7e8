// Promise: only memory that was page-locked is pinned, and a refused lock does no harm.
#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/ones.h>
#include <doctest/doctest.h>

#include <map>
#include <optional>

#include "device/conformance/promise.hpp"

using namespace lowtide::conformance;

namespace {

constexpr std::size_t kPage = HostPages::kPage;

at::Tensor page_tensor(const HostPages& pages, std::size_t page, std::size_t offset = 0) {
  return HostPages::over(pages.page(page) + offset, {16}, at::kByte);
}

at::Tensor plus_one(const Tensors& inputs) {
  return at::add(inputs[0], 1);
}

bool computes(DeviceUnderTest& device) {
  const at::Tensor there = device.to_device(at::ones({4}));
  return device.to_host(device.run(plus_one, {there})).equal(at::ones({4}) * 2);
}

// --- what is pinned ---

void check_pinned(DeviceUnderTest& device, Checks& checks) {
  const HostPages pages(device, 6);
  const auto pinned = [&](std::size_t page, std::size_t offset = 0) {
    return device.is_pinned(page_tensor(pages, page, offset));
  };
  const std::uint64_t before = device.counters().pinned_bytes;
  checks.that("memory that nobody locked is not pinned",
              [&] { return !pinned(0) && !device.is_pinned(at::ones({1000})); });
  checks.that("memory can be locked", [&] { return device.page_lock(pages.page(2), 2 * kPage); });
  checks.that("locked memory is pinned, from its first byte to its last",
              [&] { return pinned(2) && pinned(2, 100) && pinned(3) && pinned(3, kPage - 16); });
  checks.that("pages beside locked memory are not pinned",
              [&] { return !pinned(0) && !pinned(1) && !pinned(4) && !pinned(5); });
  checks.that("locked bytes are counted",
              [&] { return device.counters().pinned_bytes == before + 2 * kPage; });
  checks.that("other locked memory stays locked when one is unlocked", [&] {
    const bool locked = device.page_lock(pages.page(5), kPage);
    device.page_unlock(pages.page(5));
    return locked && pinned(2);
  });
  device.page_unlock(pages.page(2));
  checks.that("unlocked memory is not pinned, and counts no more", [&] {
    return !pinned(2) && !pinned(3) && !pinned(5) && device.counters().pinned_bytes == before;
  });
  checks.that("what was unlocked can be locked again", [&] {
    const bool locked = device.page_lock(pages.page(2), 2 * kPage) && pinned(3);
    device.page_unlock(pages.page(2));
    return locked;
  });
}
constexpr Promise kPinned{"only memory that was page-locked is pinned", Needs::page_locking, &check_pinned};
LOWTIDE_PROMISE(kPinned);

struct ClaimsAllIsPinned : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  bool is_pinned(const at::Tensor&) override { return true; }
};
LOWTIDE_SEEN_TO_FAIL("claims that everything is pinned", ClaimsAllIsPinned, kPinned,
                     "memory that nobody locked is not pinned");

struct LocksNothing : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  bool page_lock(void*, std::size_t) override { return false; }
};
LOWTIDE_SEEN_TO_FAIL("refuses all locks", LocksNothing, kPinned, "memory can be locked");

/// Knows locked memory by its first byte alone.
struct KnowsOnlyTheStart : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  bool page_lock(void* data, std::size_t size) override {
    start = data;
    return DeviceUnderTest::page_lock(data, size);
  }
  bool is_pinned(const at::Tensor& host) override {
    return host.const_data_ptr() == start && DeviceUnderTest::is_pinned(host);
  }
  const void* start = nullptr;
};
LOWTIDE_SEEN_TO_FAIL("knows locked memory by its start alone", KnowsOnlyTheStart, kPinned,
                     "locked memory is pinned, from its first byte to its last");

struct PinsTheNeighbours : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  bool is_pinned(const at::Tensor& host) override {
    auto* data = const_cast<std::byte*>(static_cast<const std::byte*>(host.const_data_ptr()));
    const auto near = [&](std::ptrdiff_t bytes) {
      return DeviceUnderTest::is_pinned(HostPages::over(data + bytes, {1}, at::kByte));
    };
    return near(0) || near(-std::ptrdiff_t{kPage}) || near(kPage);
  }
};
LOWTIDE_SEEN_TO_FAIL("takes the neighbours of locked memory for pinned", PinsTheNeighbours, kPinned,
                     "pages beside locked memory are not pinned");

struct CountsNoLocks : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  lowtide::device::DeviceCounters counters() override {
    auto counters = extras()->counters();
    counters.pinned_bytes = 0;
    return counters;
  }
};
LOWTIDE_SEEN_TO_FAIL("does not count locked memory", CountsNoLocks, kPinned, "locked bytes are counted");

/// Keeps a list of its own, to do the wrong thing with it.
struct Locker : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  bool page_lock(void* data, std::size_t size) override {
    if (!DeviceUnderTest::page_lock(data, size)) return false;
    locked[data] = size;
    return true;
  }
  void unlock_all() {
    for (const auto& [data, size] : std::exchange(locked, {})) DeviceUnderTest::page_unlock(data);
  }
  std::map<void*, std::size_t> locked;
};

struct UnlocksEverything : Locker {
  using Locker::Locker;
  void page_unlock(void*) override { unlock_all(); }
};
LOWTIDE_SEEN_TO_FAIL("unlocks everything at once", UnlocksEverything, kPinned,
                     "other locked memory stays locked when one is unlocked");

struct NeverUnlocks : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  void page_unlock(void*) override {}
};
LOWTIDE_SEEN_TO_FAIL("never unlocks", NeverUnlocks, kPinned,
                     "unlocked memory is not pinned, and counts no more",
                     "what was unlocked can be locked again");

// --- refusals ---

void check_refusals(DeviceUnderTest& device, Checks& checks) {
  const HostPages pages(device, 4);
  const auto pinned = [&](std::size_t page) { return device.is_pinned(page_tensor(pages, page)); };
  const bool locked = device.page_lock(pages.page(0), 2 * kPage);
  const std::uint64_t before = device.counters().pinned_bytes;
  checks.that("locking the same memory again is refused", [&] {
    const bool again = device.page_lock(pages.page(0), 2 * kPage);
    device.clear_error();
    return locked && !again;
  });
  checks.that("an empty range is not locked", [&] {
    const bool empty = device.page_lock(pages.page(3), 0);
    device.clear_error();
    return !empty;
  });
  checks.that("a refused lock changes nothing",
              [&] { return pinned(0) && pinned(1) && device.counters().pinned_bytes == before; });
  checks.that("after a refused lock and clear_error() the next operator works", [&] {
    device.page_lock(pages.page(0), 2 * kPage);
    device.clear_error();
    return computes(device);
  });
  checks.that("clear_error() is harmless when there is no error", [&] {
    device.clear_error();
    return computes(device) && pinned(0);
  });
  checks.that("unlocking memory that nobody locked is harmless", [&] {
    device.page_unlock(pages.page(3));
    device.page_unlock(pages.page(1));  // locked, but not from here
    device.page_unlock(nullptr);
    return computes(device) && pinned(0) && device.counters().pinned_bytes == before;
  });
  device.page_unlock(pages.page(0));
}
constexpr Promise kRefusals{"a refused lock, or unlocking what is not locked, does no harm",
                            Needs::page_locking, &check_refusals};
LOWTIDE_PROMISE(kRefusals);

struct LocksTwice : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  bool page_lock(void* data, std::size_t size) override {
    DeviceUnderTest::page_lock(data, size);
    return true;
  }
};
LOWTIDE_SEEN_TO_FAIL("locks the same memory twice, and nothing at all", LocksTwice, kRefusals,
                     "locking the same memory again is refused", "an empty range is not locked");

struct GivesUpOldLocks : Locker {
  using Locker::Locker;
  bool page_lock(void* data, std::size_t size) override {
    const bool fresh = Locker::page_lock(data, size);
    if (!fresh) unlock_all();
    return fresh;
  }
};
LOWTIDE_SEEN_TO_FAIL("gives up its locks when it refuses one", GivesUpOldLocks, kRefusals,
                     "a refused lock changes nothing");

struct NeverForgetsAnError : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  void clear_error() override {}
};
LOWTIDE_SEEN_TO_FAIL("leaves the error of a refused lock to the next operator", NeverForgetsAnError,
                     kRefusals, "after a refused lock and clear_error() the next operator works");

struct ClearsTooMuch : Locker {
  using Locker::Locker;
  void clear_error() override {
    unlock_all();
    DeviceUnderTest::clear_error();
  }
};
LOWTIDE_SEEN_TO_FAIL("clears its locks with its errors", ClearsTooMuch, kRefusals,
                     "clear_error() is harmless when there is no error");

struct UnlocksByGuess : Locker {
  using Locker::Locker;
  void page_unlock(void* data) override {
    if (locked.contains(data)) return DeviceUnderTest::page_unlock(data);
    unlock_all();
  }
};
LOWTIDE_SEEN_TO_FAIL("unlocks something else when it does not know the memory", UnlocksByGuess, kRefusals,
                     "unlocking memory that nobody locked is harmless");

}  // namespace
