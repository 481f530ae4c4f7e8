// Promise: work happens in the order of its stream, across streams in the order of events, and the host sees
// it when it has waited.
#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <c10/core/StreamGuard.h>
#include <doctest/doctest.h>

#include "device/conformance/promise.hpp"

using namespace lowtide::conformance;

namespace {

constexpr std::int64_t kElements = 1 << 20;

at::Tensor plus_one(const Tensors& inputs) {
  return at::add(inputs[0], 1);
}

at::Tensor overwrite(const Tensors& inputs) {
  return inputs[0].fill_(-1);
}

/// Page-locked 0, 1, 2, ...; page-locked zeros; and device memory nobody has written.
struct Lane {
  explicit Lane(DeviceUnderTest& on)
      : device(on),
        source(on, at::arange(kElements, at::kFloat)),
        back(on, at::zeros({kElements})),
        there(on.empty({kElements}, at::kFloat)) {
    device.finish();  // the memory is the default stream's until then
  }
  ~Lane() { device.finish(); }

  void upload(const c10::Stream& stream) {
    const c10::StreamGuard guard(stream);
    device.copy(there, source.tensor(), /*non_blocking=*/true);
  }
  /// Adds one on the device.
  void compute(const c10::Stream& stream) {
    const c10::StreamGuard guard(stream);
    result = device.run(plus_one, {there});
  }
  void download(const c10::Stream& stream, const at::Tensor& from) {
    const c10::StreamGuard guard(stream);
    device.copy(back.tensor(), from, /*non_blocking=*/true);
  }
  /// Makes what `later` does come after what `earlier` has been given so far.
  void chain(const c10::Stream& earlier, const c10::Stream& later) {
    c10::Event event = device.new_event();
    device.record(event, earlier);
    device.wait(later, event);
  }
  bool is_back(float added) const { return back.tensor().equal(at::arange(kElements, at::kFloat) + added); }

  DeviceUnderTest& device;
  PinnedTensor source, back;
  at::Tensor there, result;
};

// --- between streams ---

void check_streams(DeviceUnderTest& device, Checks& checks) {
  const c10::Stream first = device.new_stream(), second = device.new_stream(), third = device.new_stream();
  checks.that("work on one stream is done in its order", [&] {
    Lane lane(device);
    lane.upload(first);
    lane.compute(first);
    lane.download(first, lane.result);
    device.synchronize(first);
    return lane.is_back(1);
  });
  checks.that("a stream that waits for an event sees what came before it", [&] {
    Lane lane(device);
    lane.upload(first);
    lane.chain(first, second);
    lane.compute(second);
    lane.download(second, lane.result);
    device.synchronize(second);
    return lane.is_back(1);
  });
  checks.that("waiting passes on what the other stream has waited for", [&] {
    Lane lane(device);
    lane.upload(first);
    lane.chain(first, second);
    lane.chain(second, third);
    lane.compute(third);
    lane.download(third, lane.result);
    device.synchronize(third);
    return lane.is_back(1);
  });
  checks.that("memory is written anew only after the readers that were waited for", [&] {
    Lane lane(device);
    lane.there = device.to_device(lane.source.tensor());
    lane.download(first, lane.there);
    lane.chain(first, second);
    {
      const c10::StreamGuard guard(second);
      device.run(overwrite, {lane.there});
    }
    device.synchronize(second);
    return lane.is_back(0);
  });
}
constexpr Promise kOrder{"work happens in the order of its stream, and across streams in the order of events",
                         Needs::streams, &check_streams};
LOWTIDE_PROMISE(kOrder);

struct RunsOperatorsElsewhere : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  at::Tensor run(const Operator& op, const Tensors& inputs) override {
    const c10::StreamGuard guard(new_stream());
    return op(inputs);
  }
};
LOWTIDE_SEEN_TO_FAIL("runs operators on another stream", RunsOperatorsElsewhere, kOrder,
                     "work on one stream is done in its order");

struct WaitsForNothing : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  void wait(const c10::Stream&, c10::Event&) override {}
};
LOWTIDE_SEEN_TO_FAIL("does not make streams wait for events", WaitsForNothing, kOrder,
                     "a stream that waits for an event sees what came before it",
                     "waiting passes on what the other stream has waited for",
                     "memory is written anew only after the readers that were waited for");

// --- between device and host ---

void check_host(DeviceUnderTest& device, Checks& checks) {
  const c10::Stream stream = device.new_stream();
  const auto read_back = [&](const std::function<void()>& wait) {
    Lane lane(device);
    lane.upload(stream);
    lane.compute(stream);
    lane.download(stream, lane.result);
    wait();
    return lane.is_back(1);
  };
  checks.that("an asynchronous read-back is there after waiting for its stream",
              [&] { return read_back([&] { device.synchronize(stream); }); });
  checks.that("an asynchronous read-back is there after waiting for its event", [&] {
    return read_back([&] {
      c10::Event event = device.new_event();
      device.record(event, stream);
      device.synchronize(event);
    });
  });
  checks.that("an asynchronous read-back is there after waiting for the device",
              [&] { return read_back([&] { device.synchronize(); }); });
  checks.that("a blocking copy to the host is there when it returns", [&] {
    Lane lane(device);
    const at::Tensor there = device.to_device(lane.source.tensor());
    device.copy(lane.back.tensor(), there, /*non_blocking=*/false);
    return lane.is_back(0);
  });
  const auto survives_a_change = [&](at::Tensor source, bool non_blocking) {
    Lane lane(device);
    device.copy(lane.there, source, non_blocking);
    source.fill_(-1);
    lane.compute(device.default_stream());
    device.synchronize();
    lane.download(stream, lane.result);
    device.synchronize(stream);
    return lane.is_back(1);
  };
  checks.that("a blocking copy has read its source when it returns", [&] {
    const PinnedTensor source(device, at::arange(kElements, at::kFloat));
    return survives_a_change(source.tensor(), /*non_blocking=*/false);
  });
  checks.that("a copy from pageable memory has read its source when it returns, asked to wait or not", [&] {
    return survives_a_change(at::arange(kElements, at::kFloat), /*non_blocking=*/false) &&
           survives_a_change(at::arange(kElements, at::kFloat), /*non_blocking=*/true);
  });
}
constexpr Promise kHost{"the host sees what it has waited for, and blocking copies wait by themselves",
                        Needs::streams, &check_host};
LOWTIDE_PROMISE(kHost);

struct IgnoresStreamWaits : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  using DeviceUnderTest::synchronize;
  void synchronize(const c10::Stream&) override {}
};
LOWTIDE_SEEN_TO_FAIL("does not wait for a stream", IgnoresStreamWaits, kHost,
                     "an asynchronous read-back is there after waiting for its stream");

struct IgnoresEventWaits : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  using DeviceUnderTest::synchronize;
  void synchronize(const c10::Event&) override {}
};
LOWTIDE_SEEN_TO_FAIL("does not wait for an event", IgnoresEventWaits, kHost,
                     "an asynchronous read-back is there after waiting for its event");

struct IgnoresDeviceWaits : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  using DeviceUnderTest::synchronize;
  void synchronize() override {}
};
LOWTIDE_SEEN_TO_FAIL("does not wait for all streams", IgnoresDeviceWaits, kHost,
                     "an asynchronous read-back is there after waiting for the device");

struct NeverBlocks : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  void copy(const at::Tensor& target, const at::Tensor& source, bool) override {
    DeviceUnderTest::copy(target, source, /*non_blocking=*/true);
  }
};
LOWTIDE_SEEN_TO_FAIL("returns from blocking copies at once", NeverBlocks, kHost,
                     "a blocking copy to the host is there when it returns",
                     "a blocking copy has read its source when it returns");

/// Carries out copies from pageable memory when somebody waits for the device.
struct ReadsPageableMemoryLate : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  using DeviceUnderTest::synchronize;
  void copy(const at::Tensor& target, const at::Tensor& source, bool non_blocking) override {
    if (non_blocking && source.device().is_cpu() && !is_pinned(source)) {
      pending.push_back([=] { target.copy_(source); });
    } else {
      DeviceUnderTest::copy(target, source, non_blocking);
    }
  }
  at::Tensor run(const Operator& op, const Tensors& inputs) override {
    finish();
    return op(inputs);
  }
  void synchronize() override {
    finish();
    DeviceUnderTest::synchronize();
  }
  void finish() {
    for (const auto& copy : std::exchange(pending, {})) copy();
  }
  std::vector<std::function<void()>> pending;
};
LOWTIDE_SEEN_TO_FAIL("reads pageable memory after the call", ReadsPageableMemoryLate, kHost,
                     "a copy from pageable memory has read its source when it returns, asked to wait or not");

}  // namespace
