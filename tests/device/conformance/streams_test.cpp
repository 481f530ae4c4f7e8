// Promise: streams and events tell truly what is done and how long it took.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <c10/core/StreamGuard.h>
#include <doctest/doctest.h>

#include <cmath>
#include <optional>
#include <thread>

#include "device/conformance/promise.hpp"

using namespace lowtide::conformance;

namespace {

/// Work that a GPU cannot have finished before the host asks: 16 MiB there and back again.
struct RoundTrip {
  explicit RoundTrip(DeviceUnderTest& on)
      : device(on),
        stream(on.new_stream()),
        source(on, at::arange(kElements, at::kFloat)),
        back(on, at::zeros({kElements})),
        there(on.empty({kElements}, at::kFloat)) {
    device.finish();  // the memory is the default stream's until then
  }
  ~RoundTrip() { device.finish(); }

  /// Starts it and returns without waiting.
  void start() {
    const c10::StreamGuard guard(stream);
    device.copy(there, source.tensor(), /*non_blocking=*/true);
    device.copy(back.tensor(), there, /*non_blocking=*/true);
  }
  bool is_back() const { return back.tensor().equal(source.tensor()); }

  static constexpr std::int64_t kElements = 1 << 22;
  DeviceUnderTest& device;
  c10::Stream stream;
  PinnedTensor source, back;
  at::Tensor there;
};

// --- streams ---

void check_streams(DeviceUnderTest& device, Checks& checks) {
  const c10::Stream first = device.new_stream(), second = device.new_stream();
  checks.that("new streams are neither the default stream nor each other", [&] {
    return first != device.default_stream() && second != device.default_stream() && first != second;
  });
  checks.that("the current stream is the one that was set last", [&] {
    const c10::Stream before = device.current_stream();
    const c10::StreamGuard guard(first);
    const bool inside = device.current_stream() == first;
    {
      const c10::StreamGuard inner(second);
      if (device.current_stream() != second) return false;
    }
    return inside && device.current_stream() == first && before == device.default_stream();
  });
  checks.that("every thread has a current stream of its own", [&] {
    const c10::StreamGuard guard(first);
    std::optional<c10::Stream> elsewhere;
    device.current_stream();
    std::thread([&] { elsewhere = device.current_stream(); }).join();
    return elsewhere == device.default_stream() && device.current_stream() == first;
  });
  RoundTrip work(device);
  checks.that("a stream with work to do is not idle", [&] {
    work.start();
    return !device.is_idle(work.stream);
  });
  checks.that("a stream that was waited for is idle", [&] {
    device.synchronize(work.stream);
    return device.is_idle(work.stream);
  });
}
constexpr Promise kStreams{"streams are separate, and a stream is idle when its work is done", Needs::streams,
                           &check_streams};
LOWTIDE_PROMISE(kStreams);

struct HasOneStream : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  c10::Stream new_stream() override { return default_stream(); }
};
LOWTIDE_SEEN_TO_FAIL("has only one stream", HasOneStream, kStreams,
                     "new streams are neither the default stream nor each other");

struct StaysOnTheDefaultStream : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  c10::Stream current_stream() override { return default_stream(); }
};
LOWTIDE_SEEN_TO_FAIL("does not switch streams", StaysOnTheDefaultStream, kStreams,
                     "the current stream is the one that was set last");

struct SharesTheStreamAmongThreads : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  c10::Stream current_stream() override {
    const c10::Stream mine = DeviceUnderTest::current_stream();
    if (mine != default_stream()) shared = mine;
    return shared.value_or(mine);
  }
  std::optional<c10::Stream> shared;
};
LOWTIDE_SEEN_TO_FAIL("switches the streams of all threads at once", SharesTheStreamAmongThreads, kStreams,
                     "every thread has a current stream of its own");

struct IsAlwaysIdle : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  bool is_idle(const c10::Stream&) override { return true; }
};
LOWTIDE_SEEN_TO_FAIL("calls a busy stream idle", IsAlwaysIdle, kStreams,
                     "a stream with work to do is not idle");

struct IsNeverIdle : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  bool is_idle(const c10::Stream&) override { return false; }
};
LOWTIDE_SEEN_TO_FAIL("calls an idle stream busy", IsNeverIdle, kStreams,
                     "a stream that was waited for is idle");

// --- events ---

bool happens_some_time(DeviceUnderTest& device, const c10::Event& event) {
  constexpr long kQuestions = 10'000'000;
  for (long i = 0; i < kQuestions; ++i) {
    if (device.happened(event)) return true;
  }
  return false;
}

void check_events(DeviceUnderTest& device, Checks& checks) {
  checks.that("an event that was never recorded has happened",
              [&] { return device.happened(device.new_event()); });
  RoundTrip work(device);
  c10::Event event = device.new_event();
  checks.that("an event has not happened while the work before it is pending", [&] {
    work.start();
    device.record(event, work.stream);
    return !device.happened(event);
  });
  checks.that("asking an event again and again ends with yes, and then the work is done",
              [&] { return happens_some_time(device, event) && work.is_back(); });
  checks.that("an event recorded again stands for the later work", [&] {
    work.start();
    device.record(event, work.stream);
    return !device.happened(event);
  });
  checks.that("an event that was waited for has happened", [&] {
    device.synchronize(event);
    return device.happened(event);
  });
}
constexpr Promise kEvents{"an event has happened when the work before it is done, and not earlier",
                          Needs::streams, &check_events};
LOWTIDE_PROMISE(kEvents);

struct SaysYesAtOnce : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  bool happened(const c10::Event&) override { return true; }
};
LOWTIDE_SEEN_TO_FAIL("says of every event that it has happened", SaysYesAtOnce, kEvents,
                     "an event has not happened while the work before it is pending",
                     "asking an event again and again ends with yes, and then the work is done");

struct SaysNoForEver : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  bool happened(const c10::Event&) override { return false; }
};
LOWTIDE_SEEN_TO_FAIL("says of no event that it has happened", SaysNoForEver, kEvents,
                     "an event that was never recorded has happened",
                     "asking an event again and again ends with yes, and then the work is done",
                     "an event that was waited for has happened");

struct RecordsOnlyOnce : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  void record(c10::Event& event, const c10::Stream& stream) override { event.recordOnce(stream); }
};
LOWTIDE_SEEN_TO_FAIL("does not record an event a second time", RecordsOnlyOnce, kEvents,
                     "an event recorded again stands for the later work");

// --- time ---

void check_time(DeviceUnderTest& device, Checks& checks) {
  RoundTrip work(device);
  c10::Event first = device.new_timed_event(), middle = device.new_timed_event(),
             last = device.new_timed_event();
  device.record(first, work.stream);
  work.start();
  device.record(middle, work.stream);
  work.start();
  work.start();
  device.record(last, work.stream);
  device.synchronize();
  checks.that("work takes time",
              [&] { return device.elapsed_ms(first, middle) > 0 && device.elapsed_ms(middle, last) > 0; });
  checks.that("times add up", [&] {
    const double whole = device.elapsed_ms(first, last);
    const double sum = device.elapsed_ms(first, middle) + device.elapsed_ms(middle, last);
    return std::abs(whole - sum) <= 0.01 + whole * 0.001;  // a GPU's clock ticks in half microseconds
  });
  checks.that("an event that was never recorded has no time", [&] {
    return throws<c10::Error>([&] { device.elapsed_ms(first, device.new_timed_event()); });
  });
}
constexpr Promise kTime{"the time between two events is that of the work between them", Needs::streams,
                        &check_time};
LOWTIDE_PROMISE(kTime);

struct StandsStill : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  double elapsed_ms(const c10::Event& first, const c10::Event& second) override {
    return 0 * DeviceUnderTest::elapsed_ms(first, second);
  }
};
LOWTIDE_SEEN_TO_FAIL("has a clock that stands still", StandsStill, kTime, "work takes time");

struct TellsAnyTime : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  double elapsed_ms(const c10::Event&, const c10::Event&) override { return 1; }
};
LOWTIDE_SEEN_TO_FAIL("tells the same time for everything", TellsAnyTime, kTime, "times add up",
                     "an event that was never recorded has no time");

}  // namespace
