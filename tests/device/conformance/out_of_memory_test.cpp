// Promise: running out of memory is an error of its own type that harms nothing.
#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros_like.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <new>

#include "device/conformance/promise.hpp"
#include "lowtide/bytes.hpp"

using namespace lowtide;
using namespace lowtide::conformance;

namespace {

constexpr std::uint64_t kBlock = 16_MiB;  // whole segments of a GPU's allocator
constexpr std::size_t kBlocks = 4;

at::Tensor plus_one(const Tensors& inputs) {
  return at::add(inputs[0], 1);
}

/// Allocates blocks until one is refused; a device without a cap is stopped.
Tensors fill(DeviceUnderTest& device) {
  Tensors blocks;
  try {
    while (blocks.size() < 4 * kBlocks) blocks.push_back(device.empty_bytes(kBlock));
  } catch (const std::exception&) {  // its type has been checked
  }
  return blocks;
}

void check_out_of_memory(DeviceUnderTest& device, Checks& checks) {
  const std::uint64_t cap = device.used() + kBlocks * kBlock + device.cap_slack();
  device.set_cap(cap);
  const at::Tensor values = at::arange(std::int64_t{kBlock / sizeof(float)}, at::kFloat);
  const at::Tensor bystander = device.to_device(values);
  const std::uint64_t before = device.used();
  checks.that("an allocation that does not fit throws c10::OutOfMemoryError", [&] {
    return throws<c10::OutOfMemoryError>([&] { device.empty_bytes(4 * kBlocks * kBlock); });
  });
  checks.that("used memory is then as it was before", "after an allocation",
              [&] { return device.used() == before; });

  Tensors blocks = fill(device);
  const std::uint64_t full = device.used();
  checks.that("an operator whose result does not fit throws c10::OutOfMemoryError",
              [&] { return throws<c10::OutOfMemoryError>([&] { device.run(plus_one, {bystander}); }); });
  checks.that("used memory is then as it was before", "after an operator",
              [&] { return device.used() == full; });
  checks.that("the peak does not count what was refused",
              [&] { return device.counters().peak_bytes <= cap; });

  for (at::Tensor& block : blocks) device.release(block);
  checks.that("what was freed can be allocated again", [&] { return device.empty_bytes(kBlock).defined(); });
  checks.that("the same operator then works",
              [&] { return device.to_host(device.run(plus_one, {bystander})).equal(values + 1); });
  checks.that("other tensors are unharmed", [&] { return device.to_host(bystander).equal(values); });
}
constexpr Promise kOutOfMemory{"running out of memory throws c10::OutOfMemoryError and harms nothing",
                               Needs::accounting, &check_out_of_memory};
LOWTIDE_PROMISE(kOutOfMemory);

struct ThrowsAnotherType : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  at::Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype) override {
    try {
      return DeviceUnderTest::empty(sizes, dtype);
    } catch (const c10::OutOfMemoryError&) {
      throw std::bad_alloc();
    }
  }
};
LOWTIDE_SEEN_TO_FAIL("throws std::bad_alloc when memory runs out", ThrowsAnotherType, kOutOfMemory,
                     "an allocation that does not fit throws c10::OutOfMemoryError");

struct ThrowsAnyErrorInOperators : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  at::Tensor run(const Operator& op, const Tensors& inputs) override {
    try {
      return op(inputs);
    } catch (const c10::OutOfMemoryError& error) {
      TORCH_CHECK(false, error.what_without_backtrace());
    }
  }
};
LOWTIDE_SEEN_TO_FAIL("throws any error when an operator runs out of memory", ThrowsAnyErrorInOperators,
                     kOutOfMemory, "an operator whose result does not fit throws c10::OutOfMemoryError");

struct HasNoCap : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  void set_cap(std::uint64_t) override {}
};
LOWTIDE_SEEN_TO_FAIL("never runs out of memory", HasNoCap, kOutOfMemory,
                     "an operator whose result does not fit throws c10::OutOfMemoryError");

/// Does something whenever memory has run out in an allocation, and passes the error on.
struct Misreacts : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  at::Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype) override {
    try {
      at::Tensor tensor = DeviceUnderTest::empty(sizes, dtype);
      if (!first.defined()) first = tensor;
      return tensor;
    } catch (const c10::OutOfMemoryError&) {
      out_of_memory = true;
      react(static_cast<std::uint64_t>(c10::multiply_integers(sizes)) * c10::elementSize(dtype));
      throw;
    }
  }
  virtual void react(std::uint64_t) {}
  bool out_of_memory = false;
  at::Tensor first;
};

struct LeaksWhatItHadBegun : Misreacts {
  using Misreacts::Misreacts;
  void react(std::uint64_t) override {
    if (!leaked.defined()) leaked = DeviceUnderTest::empty({1}, at::kByte);
  }
  at::Tensor leaked;
};
LOWTIDE_SEEN_TO_FAIL("leaks when memory runs out", LeaksWhatItHadBegun, kOutOfMemory,
                     "used memory is then as it was before");

struct CountsWhatItRefused : Misreacts {
  using Misreacts::Misreacts;
  void react(std::uint64_t bytes) override { refused = std::max(refused, bytes); }
  device::DeviceCounters counters() override {
    device::DeviceCounters counters = extras()->counters();
    counters.peak_bytes += refused;
    return counters;
  }
  std::uint64_t refused = 0;
};
LOWTIDE_SEEN_TO_FAIL("counts refused memory in its peak", CountsWhatItRefused, kOutOfMemory,
                     "the peak does not count what was refused");

struct DamagesABystander : Misreacts {
  using Misreacts::Misreacts;
  void react(std::uint64_t) override { first.fill_(0); }
};
LOWTIDE_SEEN_TO_FAIL("damages other tensors when memory runs out", DamagesABystander, kOutOfMemory,
                     "other tensors are unharmed");

struct NeverRecovers : Misreacts {
  using Misreacts::Misreacts;
  at::Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype) override {
    TORCH_CHECK_WITH(OutOfMemoryError, !out_of_memory, "out of memory for ever");
    return Misreacts::empty(sizes, dtype);
  }
  at::Tensor run(const Operator& op, const Tensors& inputs) override {
    at::Tensor result = op(inputs);
    return out_of_memory ? at::zeros_like(result) : result;
  }
};
LOWTIDE_SEEN_TO_FAIL("does not recover when memory has run out", NeverRecovers, kOutOfMemory,
                     "what was freed can be allocated again", "the same operator then works");

}  // namespace
