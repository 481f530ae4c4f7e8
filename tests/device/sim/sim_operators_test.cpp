// Operators on the card: the CPU's bits, views, in-place operators, inference mode, devices that do not
// match.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/lstm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/InferenceMode.h>
#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

#include "device/sim/sim_library.hpp"

using lowtide::test::fresh_card;

namespace {

const c10::Device kCard(c10::DeviceType::PrivateUse1, 0);
using Tensors = std::vector<at::Tensor>;
using Function = std::function<at::Tensor(const Tensors&)>;

Tensors to_card(const Tensors& tensors) {
  Tensors moved;
  for (const at::Tensor& tensor : tensors) moved.push_back(tensor.to(kCard));
  return moved;
}

/// Runs the function on the CPU and on the card, in inference mode and without it.
void check_same_bits(const Tensors& inputs, const Function& function) {
  fresh_card();
  for (const bool inference : {false, true}) {
    const c10::InferenceMode mode(inference);
    const at::NoGradGuard no_grad;
    const at::Tensor expected = function(inputs);
    const at::Tensor result = function(to_card(inputs));
    CHECK(result.device() == kCard);
    CHECK(result.dtype() == expected.dtype());
    CHECK(result.cpu().equal(expected));
  }
}

template <class Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("networks give the CPU's exact bits") {
  SUBCASE("convolution and activation") {
    check_same_bits({at::randn({2, 3, 17, 17}), at::randn({8, 3, 3, 3}), at::randn({8})},
                    [](const Tensors& t) {
                      return at::conv2d(t[0], t[1], t[2], /*stride=*/2).relu_().mean({2, 3});
                    });
  }
  SUBCASE("embedding, norm and attention") {
    check_same_bits({at::arange(12).view({2, 6}), at::randn({50, 32}), at::ones({32})}, [](const Tensors& t) {
      const at::Tensor h = at::layer_norm(at::embedding(t[1], t[0]), {32}, t[2]);
      const at::Tensor q = h.view({2, 6, 4, 8}).transpose(1, 2);
      return at::scaled_dot_product_attention(q, q, q, {}, 0.0, /*is_causal=*/true)
          .transpose(1, 2)
          .reshape({2, 6, 32});
    });
  }
  SUBCASE("a recurrent layer") {
    check_same_bits(
        {at::randn({5, 2, 3}), at::randn({1, 2, 4}), at::randn({16, 3}), at::randn({16, 4}), at::randn({16})},
        [](const Tensors& t) {
          return std::get<0>(at::lstm(t[0], Tensors{t[1], t[1]}, Tensors{t[2], t[3], t[4], t[4]}, true, 1,
                                      0.0, false, false, false));
        });
  }
  SUBCASE("half precision and complex numbers") {
    check_same_bits({at::randn({8, 16}), at::randn({4, 16})}, [](const Tensors& t) {
      return at::linear(t[0].to(at::kBFloat16), t[1].to(at::kBFloat16));
    });
    check_same_bits({at::randn({8}, at::kComplexFloat)}, [](const Tensors& t) { return t[0].conj() * 2; });
  }
}

TEST_CASE("weights that require gradients give the same bits as on the CPU") {
  // matmul takes another path for them, and only sees it through autograd's knowledge of views
  const at::Tensor x = at::randn({5, 2, 64}).transpose(0, 1);
  const at::Tensor weight = at::randn({24, 64});
  const at::Tensor bias = at::randn({24});
  fresh_card();
  const at::Tensor card_weight = weight.to(kCard).requires_grad_(), card_bias = bias.to(kCard);
  const at::Tensor host_weight = weight.clone().requires_grad_();
  for (const bool inference : {false, true}) {
    const c10::InferenceMode mode(inference);
    const at::NoGradGuard no_grad;
    CHECK(at::linear(x.to(kCard), card_weight, card_bias).cpu().equal(at::linear(x, host_weight, bias)));
  }
}

TEST_CASE("a view shares its base's memory, takes none, and is of its base's kind") {
  auto& card = fresh_card();
  const at::Tensor normal = at::arange(12, at::kFloat).to(kCard);
  const c10::InferenceMode mode;
  const auto used = card.counters().used_bytes;
  const at::Tensor view = normal.view({3, 4}).t();
  CHECK_FALSE(view.is_inference());
  CHECK(view.is_alias_of(normal));
  CHECK(normal.slice(0, 2, 5).cpu().equal(at::arange(2, 5, at::kFloat)));
  CHECK(normal.chunk(2)[1].storage_offset() == 6);
  CHECK(card.counters().used_bytes == used);
  const at::Tensor made_here = normal + 1;
  CHECK(made_here.is_inference());
  made_here.view({-1}).add_(1);
  CHECK(made_here.cpu().equal(at::arange(12, at::kFloat) + 2));
}

TEST_CASE("operators in place change the tensor itself, its memory and its version") {
  fresh_card();
  at::Tensor a = at::arange(6, at::kFloat).to(kCard);
  const auto version = a._version();
  at::Tensor& same = a.mul_(2);
  CHECK(&same == &a);
  CHECK(a._version() > version);
  a.slice(0, 0, 2).fill_(9);
  a.unsqueeze_(0);
  CHECK(a.sizes() == at::IntArrayRef{1, 6});
  CHECK(a.cpu().equal(at::tensor({9.F, 9.F, 4.F, 6.F, 8.F, 10.F}).view({1, 6})));
}

TEST_CASE("a tensor on the CPU among tensors on the card is refused, naming the operator") {
  fresh_card();
  const c10::InferenceMode mode;
  const at::Tensor host = at::randn({4});
  const at::Tensor card = host.to(kCard);
  const std::string message = refusal([&] { card + host; });
  CHECK(message.find("Expected all tensors to be on the same device") != std::string::npos);
  CHECK(message.find("aten::add") != std::string::npos);
  CHECK(refusal([&] { at::cat({card, host}); }).find("aten::cat") != std::string::npos);
  CHECK(refusal([&] { at::linear(card, at::randn({2, 4})); }).find("aten::linear") != std::string::npos);
  CHECK(refusal([&] { at::scalar_tensor(1).add_(card); }).find("aten::add_") != std::string::npos);
}

TEST_CASE("scalars and index tensors may stay on the host") {
  fresh_card();
  const c10::InferenceMode mode;
  const at::Tensor host = at::randn({4, 3});
  const at::Tensor card = host.to(kCard);
  CHECK((card + at::scalar_tensor(2)).cpu().equal(host + 2));
  const at::Tensor rows = at::tensor({2, 0}, at::kLong);
  CHECK(at::index(card, {rows}).cpu().equal(at::index(host, {rows})));
  CHECK(at::index(card, {rows.to(kCard)}).cpu().equal(at::index(host, {rows})));
}

TEST_CASE("tensors are made where the caller says, from whatever they resemble") {
  fresh_card();
  const at::Tensor host = at::randn({3});
  const at::Tensor card = host.to(kCard);
  CHECK(at::zeros_like(card).device() == kCard);
  CHECK(at::zeros_like(card, at::TensorOptions().device(at::kCPU)).device().is_cpu());
  CHECK(at::zeros_like(host, at::TensorOptions().device(kCard)).device() == kCard);
  CHECK(card.type_as(host).device().is_cpu());
  CHECK(at::arange(3, at::TensorOptions().device(kCard)).cpu().equal(at::arange(3)));
}

TEST_CASE("reading a number back waits for the card") {
  auto& card = fresh_card(R"({"kernel_s":1,"launch_s":0,"fp32_flops":1e18,"memory_bytes_per_s":1e18})");
  const c10::InferenceMode mode;
  const at::Tensor a = at::ones({4}, at::TensorOptions().device(kCard));
  card.reset_counters();
  CHECK(a.sum().item<float>() == 4);
  CHECK(card.counters().modelled_s == doctest::Approx(2));
  a.view({2, 2});
  CHECK(card.counters().modelled_s == doctest::Approx(2));  // views are free
}
