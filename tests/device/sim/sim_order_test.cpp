// Copies over the link, streams and events: what happens when, and what a forgotten wait reads.
#include <ATen/TensorIndexing.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <doctest/doctest.h>

#include <cstring>

#include "device/sim/sim_library.hpp"

using lowtide::device::DeviceCounters;
using lowtide::device::DeviceExtras;
using lowtide::test::fresh_card;

namespace {

const c10::Device kCard(c10::DeviceType::PrivateUse1, 0);

/// Round numbers: 100 bytes a second pinned, 50 pageable, half a second latency, a quarter of a second a
/// launch.
constexpr const char* kHandCard =
    R"({"link_pinned_bytes_per_s":100,"link_pageable_bytes_per_s":50,"copy_latency_s":0.5,"launch_s":0.25,"kernel_s":1,
        "fp32_flops":1e18,"memory_bytes_per_s":1e18})";

/// A page-locked host tensor 0, 1, 2, ... and an unwritten one on the card.
struct Fixture {
  Fixture() { REQUIRE(card.page_lock(host.data_ptr(), host.nbytes())); }
  ~Fixture() { card.page_unlock(host.data_ptr()); }

  c10::Stream new_stream() const { return guard.getStreamFromGlobalPool(kCard); }
  void synchronize() const { guard.synchronizeDevice(0); }
  /// Starts the copy to the card on `stream`.
  void upload(const c10::Stream& stream) {
    const c10::StreamGuard on(stream);
    target.copy_(host, /*non_blocking=*/true);
  }

  DeviceExtras& card = fresh_card(kHandCard);
  c10::InferenceMode mode;
  c10::impl::VirtualGuardImpl guard{kCard.type()};
  at::Tensor host = at::arange(25, at::kFloat);  // 100 bytes
  at::Tensor target = at::empty({25}, at::TensorOptions().device(kCard).dtype(at::kFloat));
};

float poison_value() {
  float value = 0;
  std::memset(&value, 0xCD, sizeof(value));
  return value;
}

}  // namespace

TEST_CASE_FIXTURE(Fixture,
                  "a forgotten wait is an error that names operator, tensor, streams and the missing edge") {
  const c10::Stream copies = new_stream();
  upload(copies);
  const std::string stream = std::to_string(copies.id());
  try {
    at::add(target, 0);  // on the default stream, which waits for nothing
    FAIL("was run");
  } catch (const c10::AcceleratorError& error) {
    const std::string message = error.what_without_backtrace();
    CAPTURE(message);
    CHECK(message.find("aten::add on the default stream reads argument 'self' (f32 [25])") !=
          std::string::npos);
    CHECK(message.find("not ordered after its write by a copy to the card on stream " + stream) !=
          std::string::npos);
    CHECK(message.find("the default stream must wait for an event that is recorded on stream " + stream) !=
          std::string::npos);
  }
  synchronize();
  CHECK(target.cpu().equal(host));  // the copy itself was carried out in the end
}

TEST_CASE("unchecked, a forgotten wait reads poison, every time") {
  DeviceExtras& card = fresh_card(R"({"race_check":false})");
  const c10::InferenceMode mode;
  const at::Tensor host = at::arange(25, at::kFloat);
  REQUIRE(card.page_lock(host.data_ptr(), host.nbytes()));
  const at::Tensor target = at::empty({25}, at::TensorOptions().device(kCard).dtype(at::kFloat));
  const c10::impl::VirtualGuardImpl guard{kCard.type()};
  {
    const c10::StreamGuard on(guard.getStreamFromGlobalPool(kCard));
    target.copy_(host, /*non_blocking=*/true);
  }
  CHECK(at::add(target, 0).cpu().eq(poison_value()).all().item<bool>());
  guard.synchronizeDevice(0);
  card.page_unlock(host.data_ptr());
}

TEST_CASE_FIXTURE(Fixture, "a stream that waits for the event reads what was copied") {
  const c10::Stream copies = new_stream();
  upload(copies);
  c10::Event event(kCard.type());
  event.record(copies);
  event.block(guard.getDefaultStream(kCard));
  CHECK(at::add(target, 0).cpu().equal(host));
}

TEST_CASE_FIXTURE(Fixture, "an event recorded before the copy does not cover it") {
  const c10::Stream copies = new_stream();
  c10::Event event(kCard.type());
  event.record(copies);
  upload(copies);
  event.block(guard.getDefaultStream(kCard));
  CHECK_THROWS_AS(at::add(target, 0), c10::AcceleratorError);
}

TEST_CASE_FIXTURE(Fixture, "work on the same stream comes after the copy without an event") {
  const c10::Stream copies = new_stream();
  upload(copies);
  const c10::StreamGuard on(copies);
  CHECK(at::add(target, 0).cpu().equal(host));
}

TEST_CASE_FIXTURE(Fixture, "a queued copy reads the host's bytes late: changing them early shows") {
  const c10::Stream copies = new_stream();
  upload(copies);
  host.fill_(7);
  copies.synchronize();
  CHECK(target.cpu().eq(7).all().item<bool>());
}

TEST_CASE_FIXTURE(Fixture, "results read back asynchronously are there only after a synchronisation") {
  target.fill_(3);
  host.copy_(target, /*non_blocking=*/true);
  CHECK(host[1].item<float>() == 1);
  guard.getDefaultStream(kCard).synchronize();
  CHECK(host.eq(3).all().item<bool>());
}

TEST_CASE_FIXTURE(Fixture,
                  "memory that is freed while a copy waits counts no more, and the copy does no harm") {
  const auto before = card.counters().used_bytes;
  const c10::Stream copies = new_stream();
  upload(copies);
  SUBCASE("but without an order the next launch reports the race") {
    target.reset();
    CHECK(card.counters().used_bytes == before - 512);
    try {
      at::zeros({4}, at::TensorOptions().device(kCard));
      FAIL("was run");
    } catch (const c10::AcceleratorError& error) {
      const std::string message = error.what_without_backtrace();
      CHECK(message.find("was given back, but this is not ordered after its write by a copy to the card") !=
            std::string::npos);
      CHECK(message.find("record_stream") != std::string::npos);
    }
  }
  SUBCASE("the stream that owns the memory may wait first") {
    c10::Event event(kCard.type());
    event.record(copies);
    event.block(guard.getDefaultStream(kCard));
    target.reset();
    CHECK_NOTHROW(at::zeros({4}, at::TensorOptions().device(kCard)));
  }
  SUBCASE("a recorded stream makes the allocator keep the memory until the host sees the stream done") {
    target.record_stream(copies);
    target.reset();
    CHECK(card.counters().used_bytes == before);
    CHECK_NOTHROW(at::zeros({4}, at::TensorOptions().device(kCard)));
  }
  synchronize();
  CHECK(card.counters().used_bytes == before - 512);
}

TEST_CASE_FIXTURE(Fixture,
                  "work of another stream on a new block must be ordered after the block's own stream") {
  const at::Tensor busy = at::zeros({4}, at::TensorOptions().device(kCard));
  const at::Tensor fresh = at::empty({25}, at::TensorOptions().device(kCard).dtype(at::kFloat));
  const c10::StreamGuard on(new_stream());
  CHECK_THROWS_AS(fresh.copy_(host, /*non_blocking=*/true), c10::AcceleratorError);
  synchronize();
  CHECK_NOTHROW(fresh.copy_(host, /*non_blocking=*/true));
  synchronize();
}

TEST_CASE_FIXTURE(Fixture, "a block of a recorded stream is waited for when there is no other room") {
  card.set_cap(card.counters().used_bytes + 512);
  at::Tensor other = at::empty({25}, at::TensorOptions().device(kCard).dtype(at::kFloat));
  const c10::Stream copies = new_stream();
  {
    const c10::StreamGuard on(copies);
    other.copy_(host, /*non_blocking=*/true);
  }
  other.record_stream(copies);
  other.reset();
  const double before = card.counters().modelled_s;
  CHECK_NOTHROW(at::empty({25}, at::TensorOptions().device(kCard).dtype(at::kFloat)));
  CHECK(card.counters().modelled_s >= before);
  card.set_cap(card.total_bytes());
  synchronize();
}

TEST_CASE_FIXTURE(Fixture, "page-locked memory must not be unlocked under a waiting copy") {
  upload(new_stream());
  card.page_unlock(host.data_ptr());
  CHECK_THROWS_AS(at::zeros({4}, at::TensorOptions().device(kCard)), c10::AcceleratorError);
  synchronize();
}

TEST_CASE_FIXTURE(Fixture, "the host's tensor of a waiting copy back must not be used as an operand before") {
  target.fill_(0);
  at::Tensor index = at::arange(25, at::kLong);
  REQUIRE(card.page_lock(index.data_ptr(), index.nbytes()));
  const at::Tensor on_card = at::zeros({25}, at::TensorOptions().device(kCard).dtype(at::kLong));
  index.copy_(on_card, /*non_blocking=*/true);
  CHECK_THROWS_AS(target.index({index}), c10::AcceleratorError);
  synchronize();
  CHECK(target.index({index}).cpu().equal(at::zeros({25})));
  card.page_unlock(index.data_ptr());
}

TEST_CASE_FIXTURE(Fixture, "only page-locked memory is copied asynchronously, whatever the caller asks for") {
  const at::Tensor pageable = at::full({25}, 5.0);
  card.reset_counters();
  {
    const c10::StreamGuard on(new_stream());
    target.copy_(pageable, /*non_blocking=*/true);
  }
  CHECK(at::add(target, 0).cpu().equal(pageable));
  CHECK(card.counters().link_s == doctest::Approx(0.5 + 2 + 0.5 + 2));  // both at the pageable rate
}

TEST_CASE_FIXTURE(Fixture, "a copy from page-locked memory that the host waits for runs at the full rate") {
  card.reset_counters();
  target.copy_(host, /*non_blocking=*/false);
  CHECK(card.counters().modelled_s == doctest::Approx(0.25 + 0.5 + 1));
  CHECK(card.counters().h2d_bytes == 100);
  CHECK(card.counters().h2d_copies == 1);
}

TEST_CASE_FIXTURE(
    Fixture, "copying beside computing takes the time of the longer one, and waiting is counted as stall") {
  const c10::Stream copies = new_stream();
  card.reset_counters();
  const at::Tensor other = at::zeros({4}, at::TensorOptions().device(kCard));  // one operator: 0.25 .. 1.25
  upload(copies);                                                              // host 0.5, copy 0.5 .. 2
  c10::Event event(kCard.type());
  event.record(copies);
  event.block(guard.getDefaultStream(kCard));  // compute would be free at 1.25 and waits until 2
  at::add(target, 0);                          // 2 .. 3
  const DeviceCounters counters = card.counters();
  CHECK(counters.modelled_s == doctest::Approx(3));
  CHECK(counters.compute_s == doctest::Approx(2));
  CHECK(counters.link_s == doctest::Approx(1.5));
  CHECK(counters.stall_s == doctest::Approx(0.75));
}

TEST_CASE_FIXTURE(Fixture, "a strided copy counts its elements, not the span they lie in") {
  const at::Tensor wide = at::zeros({4, 10});
  card.reset_counters();
  const at::Tensor moved = wide.slice(1, 0, 3).to(kCard);
  CHECK(card.counters().h2d_bytes == 4 * 3 * 4);
  moved.slice(0, 1, 3).cpu();
  CHECK(card.counters().d2h_bytes == 2 * 3 * 4);
  CHECK(card.counters().h2d_copies == 1);
}

TEST_CASE_FIXTURE(Fixture, "equal runs after a reset give equal numbers") {
  const auto run = [&] {
    card.reset_counters();
    const c10::Stream copies = new_stream();
    upload(copies);
    c10::Event event(kCard.type());
    event.record(copies);
    event.block(guard.getDefaultStream(kCard));
    at::add(target, target).sum().item<float>();
    return card.counters();
  };
  const DeviceCounters first = run();
  const DeviceCounters second = run();
  CHECK(first.modelled_s > 0);
  CHECK(first.modelled_s == second.modelled_s);
  CHECK(first.compute_s == second.compute_s);
  CHECK(first.stall_s == second.stall_s);
  CHECK(first.peak_bytes == second.peak_bytes);
}

TEST_CASE_FIXTURE(Fixture, "asking an event again and again ends with yes, and then its copy is done") {
  const c10::Stream copies = new_stream();
  upload(copies);
  c10::Event event(kCard.type());
  event.record(copies);
  CHECK_FALSE(event.query());
  long questions = 0;
  while (!event.query() && questions < 10'000'000) ++questions;
  CHECK(event.query());
  CHECK(target.cpu().equal(host));
}
