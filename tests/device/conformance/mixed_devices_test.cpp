// Promise: operands on different devices are refused, but for numbers and indices.
#include <ATen/TensorIndexing.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <stdexcept>

#include "device/conformance/promise.hpp"

using namespace lowtide::conformance;

namespace {

struct Mix {
  const char* name;
  Operator op;
  Tensors host;          // all operands
  std::size_t stranger;  // the one that stays on the host
};

at::Tensor sum(const Tensors& t) {
  return at::add(t[0], t[1]);
}

/// What is refused.
std::vector<Mix> mixes() {
  const at::Tensor matrix = at::arange(16, at::kFloat).view({4, 4});
  const at::Tensor image = at::arange(32, at::kFloat).view({1, 2, 4, 4});
  const auto product = [](const Tensors& t) { return at::matmul(t[0], t[1]); };
  const auto in_place = [](const Tensors& t) { return t[0].add_(t[1]); };
  return {
      {"the second operand of add", sum, {matrix, matrix}, 1},
      {"the first operand of add", sum, {matrix, matrix}, 0},
      {"the second operand of matmul", product, {matrix, matrix}, 1},
      {"the first operand of matmul", product, {matrix, matrix}, 0},
      {"the weight of linear", [](const Tensors& t) { return at::linear(t[0], t[1]); }, {matrix, matrix}, 1},
      {"the weight of conv2d", [](const Tensors& t) { return at::conv2d(t[0], t[1]); }, {image, image}, 1},
      {"one of those that cat joins",
       [](const Tensors& t) { return at::cat(t); },
       {matrix, matrix, matrix},
       2},
      {"what add_ adds", in_place, {matrix, matrix}, 1},
      {"what add_ adds to", in_place, {matrix, matrix}, 0},
      {"the output of add",
       [](const Tensors& t) {
         at::Tensor out = t[0];
         return at::add_out(out, t[1], t[1]);
       },
       {matrix, matrix},
       0},
  };
}

/// All but the stranger on the device.
Tensors placed(DeviceUnderTest& device, const Mix& mix) {
  Tensors operands;
  for (std::size_t i = 0; i < mix.host.size(); ++i)
    operands.push_back(i == mix.stranger ? mix.host[i].clone() : device.to_device(mix.host[i]));
  return operands;
}

void check_mixed(DeviceUnderTest& device, Checks& checks) {
  for (const Mix& mix : mixes()) {
    const Tensors operands = placed(device, mix);
    const std::uint64_t before = device.used();
    checks.that("a tensor on the host among others on the device is refused with c10::Error", mix.name,
                [&] { return throws<c10::Error>([&] { device.run(mix.op, operands); }); });
    checks.that("a refused operator leaves nothing allocated", mix.name,
                [&] { return device.used() == before; });
    checks.that("a refused operator leaves its operands as they were", mix.name, [&] {
      return std::equal(operands.begin(), operands.end(), mix.host.begin(),
                        [&](const at::Tensor& a, const at::Tensor& b) { return device.to_host(a).equal(b); });
    });
  }
  checks.that("the same operators work when all operands are on the device", [&] {
    for (Mix mix : mixes()) {
      Tensors on_host;
      for (const at::Tensor& operand : mix.host) on_host.push_back(operand.clone());
      const at::Tensor wanted = mix.op(on_host);
      mix.stranger = mix.host.size();
      if (!device.to_host(device.run(mix.op, placed(device, mix))).equal(wanted)) return false;
    }
    return true;
  });
}
constexpr Promise kMixed{"operands on different devices are refused", Needs::memory_of_its_own, &check_mixed};
LOWTIDE_PROMISE(kMixed);

/// Does something when an operator was refused.
struct Misreacts : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  at::Tensor run(const Operator& op, const Tensors& inputs) override {
    try {
      return op(inputs);
    } catch (const c10::Error&) {
      return react(op, inputs);
    }
  }
  virtual at::Tensor react(const Operator& op, const Tensors& inputs) = 0;
};

struct AcceptsMixedDevices : Misreacts {
  using Misreacts::Misreacts;
  at::Tensor react(const Operator& op, const Tensors& inputs) override {
    Tensors moved;
    for (const at::Tensor& input : inputs) moved.push_back(input.to(torch()));
    return op(moved);
  }
};
LOWTIDE_SEEN_TO_FAIL("accepts operands on different devices", AcceptsMixedDevices, kMixed,
                     "a tensor on the host among others on the device is refused with c10::Error");

struct ThrowsSomethingElse : Misreacts {
  using Misreacts::Misreacts;
  at::Tensor react(const Operator&, const Tensors&) override {
    throw std::runtime_error("operands on different devices");
  }
};
LOWTIDE_SEEN_TO_FAIL("refuses mixed operands with an error of another type", ThrowsSomethingElse, kMixed,
                     "a tensor on the host among others on the device is refused with c10::Error");

struct KeepsWhatItHadBegun : Misreacts {
  using Misreacts::Misreacts;
  at::Tensor react(const Operator&, const Tensors&) override {
    begun.push_back(empty_bytes(1));
    throw;
  }
  Tensors begun;
};
LOWTIDE_SEEN_TO_FAIL("leaks when it refuses operands", KeepsWhatItHadBegun, kMixed,
                     "a refused operator leaves nothing allocated");

struct WritesBeforeItRefuses : Misreacts {
  using Misreacts::Misreacts;
  at::Tensor react(const Operator&, const Tensors& inputs) override {
    inputs[0].fill_(0);
    throw;
  }
};
LOWTIDE_SEEN_TO_FAIL("writes into operands that it refuses", WritesBeforeItRefuses, kMixed,
                     "a refused operator leaves its operands as they were");

struct StaysOffended : Misreacts {
  using Misreacts::Misreacts;
  at::Tensor run(const Operator& op, const Tensors& inputs) override {
    TORCH_CHECK(!offended, "operands were on different devices");
    return Misreacts::run(op, inputs);
  }
  at::Tensor react(const Operator&, const Tensors&) override {
    offended = true;
    throw;
  }
  bool offended = false;
};
LOWTIDE_SEEN_TO_FAIL("refuses everything after it has refused once", StaysOffended, kMixed,
                     "the same operators work when all operands are on the device");

// --- what may stay on the host ---

void check_exceptions(DeviceUnderTest& device, Checks& checks) {
  const at::Tensor host = at::arange(12, at::kFloat).view({4, 3});
  const at::Tensor there = device.to_device(host);
  const at::Tensor number = at::scalar_tensor(2.5), rows = at::tensor({2, 0, 2}, at::kLong);
  const auto product = [](const Tensors& t) { return at::mul(t[0], t[1]); };
  const auto index = [](const Tensors& t) { return t[0].index({t[1]}); };
  at::Tensor result;
  checks.that("a number may be a tensor without dimensions on the host", [&] {
    result = device.run(sum, {there, number});
    return device.to_host(result).equal(host + 2.5) &&
           device.to_host(device.run(product, {number, there})).equal(host * 2.5);
  });
  checks.that("the result is on the device", "of a number",
              [&] { return result.device() == device.torch(); });
  checks.that("index tensors may stay on the host", [&] {
    result = device.run(index, {there, rows});
    return device.to_host(result).equal(host.index({rows}));
  });
  checks.that("the result is on the device", "of an index",
              [&] { return result.device() == device.torch(); });
}
constexpr Promise kExceptions{"numbers and indices may stay on the host", Needs::memory_of_its_own,
                              &check_exceptions};
LOWTIDE_PROMISE(kExceptions);

struct RefusesNumbers : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  at::Tensor run(const Operator& op, const Tensors& inputs) override {
    for (const at::Tensor& input : inputs)
      TORCH_CHECK(!input.device().is_cpu() || input.dim() != 0, "operands on different devices");
    return op(inputs);
  }
};
LOWTIDE_SEEN_TO_FAIL("refuses numbers on the host", RefusesNumbers, kExceptions,
                     "a number may be a tensor without dimensions on the host");

struct RefusesHostIndices : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  at::Tensor run(const Operator& op, const Tensors& inputs) override {
    for (const at::Tensor& input : inputs)
      TORCH_CHECK(!input.device().is_cpu() || input.scalar_type() != at::kLong,
                  "operands on different devices");
    return op(inputs);
  }
};
LOWTIDE_SEEN_TO_FAIL("refuses indices on the host", RefusesHostIndices, kExceptions,
                     "index tensors may stay on the host");

struct AnswersOnTheHost : DeviceUnderTest {
  using DeviceUnderTest::DeviceUnderTest;
  at::Tensor run(const Operator& op, const Tensors& inputs) override { return op(inputs).cpu(); }
};
LOWTIDE_SEEN_TO_FAIL("puts results on the host", AnswersOnTheHost, kExceptions,
                     "the result is on the device");

}  // namespace
