#include "graph/op_cost.hpp"

#include <doctest/doctest.h>

#include <vector>

using namespace lowtide::graph;

namespace {

struct Shape {
  std::vector<std::int64_t> sizes;
  DType dtype = DType::f32;
};

OpCost cost(std::string_view op, const std::vector<Shape>& inputs, const std::vector<Shape>& outputs,
            bool aliasing = false) {
  std::vector<ShapeView> in, out;
  for (const Shape& shape : inputs) in.push_back({shape.dtype, shape.sizes});
  for (const Shape& shape : outputs) out.push_back({shape.dtype, shape.sizes});
  return op_cost(op, in, out, aliasing);
}

}  // namespace

TEST_CASE("matrix products count two operations for every multiply and add") {
  CHECK(cost("aten::mm", {{{3, 4}}, {{4, 5}}}, {{{3, 5}}}).flops == 2 * 3 * 4 * 5);
  CHECK(cost("aten::bmm", {{{2, 3, 4}}, {{2, 4, 5}}}, {{{2, 3, 5}}}).flops == 2 * 2 * 3 * 4 * 5);
  CHECK(cost("aten::matmul", {{{7, 3, 4}}, {{4, 5}}}, {{{7, 3, 5}}}).flops == 2 * 7 * 3 * 4 * 5);
  CHECK(cost("aten::addmm", {{{5}}, {{3, 4}}, {{4, 5}}}, {{{3, 5}}}).flops == 2 * 3 * 4 * 5);
  CHECK(cost("aten::baddbmm", {{{2, 3, 5}}, {{2, 3, 4}}, {{2, 4, 5}}}, {{{2, 3, 5}}}).flops ==
        2 * 2 * 3 * 4 * 5);
  CHECK(cost("aten::addbmm", {{{3, 5}}, {{2, 3, 4}}, {{2, 4, 5}}}, {{{3, 5}}}).flops == 2 * 2 * 3 * 4 * 5);
  CHECK(cost("aten::linear", {{{2, 3, 4}}, {{5, 4}}, {{5}}}, {{{2, 3, 5}}}).flops == 2 * 2 * 3 * 4 * 5);
}

TEST_CASE("an in-place product costs what the product costs") {
  CHECK(cost("aten::addmm_", {{{3, 5}}, {{3, 4}}, {{4, 5}}}, {{{3, 5}}}).flops == 2 * 3 * 4 * 5);
}

TEST_CASE("a convolution counts the taps of each result element, grouped ones fewer") {
  CHECK(cost("aten::conv2d", {{{1, 3, 8, 8}}, {{16, 3, 3, 3}}}, {{{1, 16, 6, 6}}}).flops == 2 * 16 * 36 * 27);
  CHECK(cost("aten::conv2d", {{{1, 16, 8, 8}}, {{16, 1, 3, 3}}}, {{{1, 16, 6, 6}}}).flops == 2 * 16 * 36 * 9);
  CHECK(cost("aten::conv1d", {{{1, 3, 8}}, {{4, 3, 3}}}, {{{1, 4, 6}}}).flops == 2 * 4 * 6 * 9);
}

TEST_CASE(
    "a transposed convolution counts the taps of each input element, also through the general entry points") {
  const std::vector<Shape> inputs{{{1, 8, 4, 4}}, {{8, 6, 2, 2}}};
  const std::vector<Shape> outputs{{{1, 6, 8, 8}}};
  CHECK(cost("aten::conv_transpose2d", inputs, outputs).flops == 2 * 8 * 16 * 24);
  CHECK(cost("aten::convolution", inputs, outputs).flops == 2 * 8 * 16 * 24);
  CHECK(cost("aten::convolution", {{{1, 8, 4, 4}}, {{8, 8, 2, 2}}}, {{{1, 8, 8, 8}}}).flops ==
        2 * 8 * 16 * 32);
  CHECK(cost("aten::convolution", {{{1, 8, 8, 8}}, {{8, 8, 3, 3}}}, {{{1, 8, 8, 8}}}).flops ==
        2 * 8 * 64 * 72);
}

TEST_CASE("attention counts both products, for all its variants") {
  const std::vector<Shape> qkv{{{1, 2, 10, 4}}, {{1, 2, 20, 4}}, {{1, 2, 20, 6}}};
  const std::vector<Shape> out{{{1, 2, 10, 6}}};
  const double expected = 2 * 2 * 10 * 20 * (4 + 6);
  CHECK(cost("aten::scaled_dot_product_attention", qkv, out).flops == expected);
  CHECK(cost("aten::_scaled_dot_product_flash_attention_for_cpu", qkv, out).flops == expected);
  CHECK(cost("aten::_scaled_dot_product_efficient_attention", qkv, out).flops == expected);
}

TEST_CASE("recurrent layers use every weight matrix once per step and row, and their state is no weight") {
  const Shape x{{5, 2, 3}}, h{{1, 2, 4}}, wi{{16, 3}}, wh{{16, 4}}, b{{16}};
  CHECK(cost("aten::lstm", {x, h, h, wi, wh, b, b}, {{{5, 2, 4}}, h, h}).flops == 2 * 10 * (48 + 64));
  const Shape row{{2, 3}}, state{{2, 4}};
  CHECK(cost("aten::lstm_cell", {row, state, state, wi, wh, b, b}, {state, state}).flops ==
        2 * 2 * (48 + 64));
  CHECK(cost("aten::gru_cell", {row, state, {{12, 3}}, {{12, 4}}}, {state}).flops == 2 * 2 * (36 + 48));
}

TEST_CASE("an embedding counts the rows it reads, not the table") {
  const OpCost rows = cost("aten::embedding", {{{1000, 8}}, {{3}, DType::i64}}, {{{3, 8}}});
  CHECK(rows.bytes == 3 * 8 * 4 * 2 + 3 * 8);
  CHECK(rows.flops == 0);
}

TEST_CASE("writing rows in place counts the rows, not the target") {
  const OpCost rows =
      cost("aten::index_copy_", {{{1, 1000, 8}}, {{2}, DType::i64}, {{1, 2, 8}}}, {{{1, 1000, 8}}});
  CHECK(rows.bytes == 2 * (2 * 8 * 4) + 2 * 8);
}

TEST_CASE("views are free, everything else costs its bytes") {
  const OpCost view = cost("aten::view", {{{4, 4}}}, {{{16}}}, true);
  CHECK(view.view);
  CHECK(view.bytes == 0);
  CHECK(op_seconds(view, {}) == 0);
  const OpCost add = cost("aten::add", {{{4, 4}}, {{4, 4}}}, {{{4, 4}}});
  CHECK_FALSE(add.view);
  CHECK(add.bytes == 3 * 64);
  CHECK(cost("other::thing", {{{4}}}, {{{4}, DType::f64}}).bytes == 16 + 32);
}

TEST_CASE("an operator without results is host work, unless it reads a number back") {
  CHECK(cost("aten::sym_size", {{{4, 4}}}, {}).view);
  CHECK_FALSE(cost("aten::_local_scalar_dense", {{{}}}, {}).view);
}

TEST_CASE("unusual shapes never break the model") {
  CHECK(cost("aten::linear", {{{0, 4}}, {{5, 4}}}, {{{0, 5}}}).flops == 0);
  CHECK(cost("aten::conv2d", {{{1, 3, 8, 8}}, {{0, 3, 3, 3}}}, {{{1, 0, 6, 6}}}).flops == 0);
  CHECK(cost("aten::mm", {}, {}).flops == 0);
  CHECK(cost("aten::scaled_dot_product_attention", {{{0}}, {{0}}}, {{{0}}}).flops == 0);
  CHECK(cost("aten::dot", {{{4}}, {{4}}}, {{{}}}).flops == 8);
}

TEST_CASE("an operator takes the longer of computing and moving, plus the kernel's fixed time") {
  const ComputeRates rates{
      .fp32_flops = 100, .fp16_flops = 200, .fp64_flops = 50, .memory_bytes_per_s = 10, .kernel_s = 1};
  CHECK(op_seconds({.flops = 500, .bytes = 20}, rates) == 6);
  CHECK(op_seconds({.flops = 500, .bytes = 80}, rates) == 9);
  CHECK(op_seconds({.flops = 500, .bytes = 0, .precision = Precision::half}, rates) == 3.5);
  CHECK(op_seconds({.flops = 500, .bytes = 0, .precision = Precision::double_}, rates) == 11);
  CHECK(cost("aten::mm", {{{3, 4}, DType::bf16}, {{4, 5}, DType::bf16}}, {{{3, 5}, DType::bf16}}).precision ==
        Precision::half);
  CHECK(cost("aten::mm", {{{3, 4}}, {{4, 5}}}, {{{3, 5}}}).precision == Precision::single);
}
