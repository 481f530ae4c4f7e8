// Promise: when its tensors are gone, work leaves the device as it was.
#include <ATen/TensorIndexing.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/tensor.h>
#include <doctest/doctest.h>

#include "device/conformance/promise.hpp"

using namespace lowtide::conformance;

namespace {

at::Tensor wave(at::IntArrayRef sizes) {
  return at::arange(c10::multiply_integers(sizes), at::kFloat).sin().view(sizes);
}

/// A mix of operators: with and without temporaries, views, in place, indices, several results.
const std::vector<Operator>& operators() {
  static const std::vector<Operator> all{
      [](const Tensors& t) { return at::conv2d(t[0], t[1], {}, /*stride=*/2).relu_(); },
      [](const Tensors& t) { return at::linear(t[2], t[3]).add_(1); },
      [](const Tensors& t) {
        return at::matmul(t[2].view({4, 8, 64}).transpose(1, 2), t[2].view({4, 8, 64}));
      },
      [](const Tensors& t) {
        return at::softmax(t[2].view({32, 64, 1}).expand({32, 64, 8}), 1);
      },
      [](const Tensors& t) { return at::layer_norm(t[2], {64}); },
      [](const Tensors& t) { return at::embedding(t[3], t[4]); },
      [](const Tensors& t) { return t[3].index({t[4]}); },
      [](const Tensors& t) {
        return at::cat({t[2], t[3], std::get<0>(at::sort(t[2], 1))});
      },
      [](const Tensors& t) {
        return t[0].to(at::kDouble).mean({2, 3});
      },
  };
  return all;
}

/// Inputs to the device, all operators, results back to the host: what comes out, bit for bit.
std::string work(DeviceUnderTest& device) {
  Tensors inputs;
  for (const at::Tensor& host : {wave({1, 8, 32, 32}), wave({16, 8, 3, 3}), wave({32, 64}), wave({64, 64}),
                                 at::tensor({3, 60, 3, 0}, at::kLong)})
    inputs.push_back(device.to_device(host));
  std::string results;
  for (const Operator& op : operators()) results += bits(device.to_host(device.run(op, inputs)));
  device.synchronize();
  return results;
}

void check_baseline(DeviceUnderTest& device, Checks& checks) {
  work(device);  // libraries take what they keep for ever
  device.trim();
  const std::uint64_t baseline = device.used();
  std::string results[2];
  std::uint64_t peaks[2];
  for (int i = 0; i < 2; ++i) {
    device.start_window();
    results[i] = work(device);
    peaks[i] = device.window_peak();
  }
  checks.that("used memory is exactly what it was before", [&] { return device.used() == baseline; });
  checks.that("the same work has the same peak", [&] { return peaks[0] == peaks[1]; });
  checks.that("the same work gives the same bits",
              [&] { return !results[0].empty() && results[0] == results[1]; });
  checks.that("after a trim nothing is reserved beside what is used", [&] {
    device.trim();
    return device.counters().reserved_bytes == device.used();
  });
}
constexpr Promise kBaseline{"work leaves used memory as it was, and does the same when it is repeated",
                            Needs::accounting, &check_baseline};
LOWTIDE_PROMISE(kBaseline);

struct KeepsResults : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  at::Tensor run(const Operator& op, const Tensors& inputs) override {
    kept.push_back(op(inputs));
    return kept.back();
  }
  Tensors kept;
};
LOWTIDE_SEEN_TO_FAIL("keeps the results of operators", KeepsResults, kBaseline,
                     "used memory is exactly what it was before");

struct TakesMoreEachTime : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  at::Tensor run(const Operator& op, const Tensors& inputs) override {
    const at::Tensor temporary = empty_bytes(1'000'000 * ++calls);
    return op(inputs);
  }
  std::uint64_t calls = 0;
};
LOWTIDE_SEEN_TO_FAIL("takes more memory for the same work each time", TakesMoreEachTime, kBaseline,
                     "the same work has the same peak");

struct ComputesByChance : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  at::Tensor run(const Operator& op, const Tensors& inputs) override {
    return op(inputs).add(1e-3 * ++calls);
  }
  int calls = 0;
};
LOWTIDE_SEEN_TO_FAIL("gives other bits each time", ComputesByChance, kBaseline,
                     "the same work gives the same bits");

struct NeverTrims : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  void trim() override {}
};
LOWTIDE_SEEN_TO_FAIL("keeps its cache when it is to be trimmed", NeverTrims, kBaseline,
                     "after a trim nothing is reserved beside what is used");

}  // namespace
