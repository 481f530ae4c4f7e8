#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/InferenceMode.h>
#include <doctest/doctest.h>

#include <string>
#include <thread>

#include "device/sim/sim_library.hpp"

using lowtide::test::fresh_card;
using lowtide::test::open_sim;

namespace {

const c10::Device kCard(c10::DeviceType::PrivateUse1, 0);

at::Tensor on_card(at::IntArrayRef sizes) {
  return at::empty(sizes, at::TensorOptions().device(kCard));
}

}  // namespace

TEST_CASE("a mistaken card is refused with a message, and the old card stays") {
  fresh_card(R"({"name":"good","total_bytes":1048576})");
  const auto bad = open_sim(R"({"total_bytes":-5})");
  CHECK(bad.card == nullptr);
  CHECK(bad.error.find("total_bytes") != std::string::npos);
  CHECK(open_sim(R"({"name":"good","total_bytes":1048576})").card->name() == "good");
}

TEST_CASE("a card is replaced only while nothing is allocated on it") {
  fresh_card();
  {
    const at::Tensor live = on_card({4});
    const auto other = open_sim(R"({"name":"other"})");
    CHECK(other.card == nullptr);
    CHECK(other.error.find("1 allocations") != std::string::npos);
    CHECK(open_sim("{}").card != nullptr);  // the same card: nothing changes
  }
  CHECK(open_sim(R"({"name":"other"})").card->name() == "other");
}

TEST_CASE("context, tensors and the cap are counted to the byte") {
  auto& card = fresh_card(R"({"context_bytes":1000,"total_bytes":100000})");
  CHECK(card.counters().used_bytes == 1000);
  card.set_cap(1000 + 2048);
  CHECK_THROWS(card.set_cap(100001));
  {
    const at::Tensor a = on_card({256});
    CHECK(card.counters().used_bytes == 1000 + 1024);
    const at::Tensor b = on_card({256});
    CHECK(card.counters().used_bytes == 1000 + 2048);
    try {
      on_card({1});
      FAIL("the cap was passed");
    } catch (const c10::OutOfMemoryError& error) {
      const std::string message = error.what_without_backtrace();
      CHECK(message.find("want 512") != std::string::npos);
      CHECK(message.find("cap 3048") != std::string::npos);
    }
    CHECK(card.counters().used_bytes == 1000 + 2048);
  }
  CHECK(card.counters().used_bytes == 1000);
  CHECK(card.counters().peak_bytes == 1000 + 2048);
}

TEST_CASE("PyTorch's device-generic allocator sees the same numbers") {
  auto& card = fresh_card(R"({"context_bytes":1000,"total_bytes":100000})");
  card.set_cap(50000);
  auto* allocator = c10::getDeviceAllocator(kCard.type());
  at::Tensor a = on_card({256});
  CHECK(allocator->getDeviceStats(0).allocated_bytes[0].current == 1024);
  CHECK(allocator->getMemoryInfo(0).first == 50000 - 2024);
  CHECK(allocator->getMemoryInfo(0).second == 100000);
  a.reset();
  CHECK(card.counters().reserved_bytes == 2024);
  allocator->emptyCache();
  CHECK(card.counters().reserved_bytes == 1000);
  CHECK(allocator->getDeviceStats(0).allocated_bytes[0].peak == 1024);
  allocator->resetPeakStats(0);
  CHECK(allocator->getDeviceStats(0).allocated_bytes[0].peak == 0);
}

TEST_CASE("an operator's result and its temporaries are the card's memory") {
  auto& card = fresh_card();
  const c10::InferenceMode mode;
  {
    const at::Tensor a = at::randn({64, 64}).to(kCard);  // 16 KiB
    card.start_window();
    const at::Tensor sum = at::add(a, a);
    CHECK(card.window_peak() == 2 * 16384);
    CHECK(card.counters().used_bytes == 2 * 16384);
    card.start_window();
    // The kernel makes a contiguous copy of its expanded operand.
    const at::Tensor soft = at::softmax(a.view({64, 64, 1}).expand({64, 64, 8}), 1);
    const auto result = static_cast<std::uint64_t>(soft.nbytes());
    CHECK(card.counters().used_bytes == 2 * 16384 + result);
    CHECK(card.window_peak() > 2 * 16384 + result);
  }
  CHECK(card.counters().used_bytes == 0);
}

TEST_CASE("running out of memory inside an operator leaks nothing and leaves the operands usable") {
  auto& card = fresh_card(R"({"total_bytes":65536})");
  const c10::InferenceMode mode;
  {
    const at::Tensor a = at::randn({64, 64}).to(kCard);
    const at::Tensor b = at::add(a, a);
    const at::Tensor c = at::add(a, a);
    const auto before = card.counters().used_bytes;
    CHECK_THROWS_AS(at::add(a.view({64, 64, 1}), a.view({64, 1, 64})), c10::OutOfMemoryError);
    CHECK(card.counters().used_bytes == before);
    CHECK(b.cpu().equal(c.cpu()));
  }
  CHECK(card.counters().used_bytes == 0);
}

TEST_CASE("host memory allocated beside a kernel, or by another thread, is not the card's") {
  auto& card = fresh_card();
  const at::Tensor host = at::zeros({1000});
  at::Tensor other;
  std::thread([&] { other = at::zeros({1000}); }).join();
  CHECK(card.counters().used_bytes == 0);
}

TEST_CASE("used memory returns to its baseline however often operators run") {
  auto& card = fresh_card();
  const c10::InferenceMode mode;
  const at::Tensor image = at::randn({1, 8, 32, 32}).to(kCard);
  const at::Tensor weight = at::randn({16, 8, 3, 3}).to(kCard);
  const at::Tensor rows = at::randn({32, 64}).to(kCard);
  const at::Tensor matrix = at::randn({64, 64}).to(kCard);
  const auto baseline = card.counters().used_bytes;
  std::uint64_t first_peak = 0;
  for (int i = 0; i < 20; ++i) {
    card.start_window();
    at::conv2d(image, weight);
    at::linear(rows, matrix);
    at::matmul(rows.view({2, 16, 64}), matrix.t());
    CHECK(card.counters().used_bytes == baseline);
    if (i == 0) first_peak = card.window_peak();
    CHECK(card.window_peak() == first_peak);
  }
  CHECK(first_peak > baseline);
}

TEST_CASE("memory nobody has written is poisoned") {
  fresh_card();
  const at::Tensor fresh = at::empty({16}, at::TensorOptions().device(kCard).dtype(at::kByte)).cpu();
  for (int i = 0; i < 16; ++i) CHECK(fresh.data_ptr<std::uint8_t>()[i] == 0xCD);
}

TEST_CASE("an output tensor that an operator enlarges takes its new memory from the card") {
  auto& card = fresh_card();
  const c10::InferenceMode mode;
  at::Tensor out = on_card({0});
  CHECK(card.counters().used_bytes == 0);
  const at::Tensor a = at::arange(1000, at::TensorOptions().device(kCard).dtype(at::kFloat));
  at::add_out(out, a, a);
  CHECK(card.counters().used_bytes == 2 * 4096);
  CHECK(out.sizes() == at::IntArrayRef{1000});
  CHECK(out.cpu().equal(at::arange(1000, at::kFloat) * 2));
}
