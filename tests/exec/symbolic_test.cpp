#include "exec/symbolic.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "lowtide/error.hpp"

using namespace lowtide;
using exec::SymbolicOp;

namespace {

std::int64_t integer(SymbolicOp op, std::int64_t a, std::int64_t b) {
  const std::vector<c10::IValue> arguments{a, b};
  return exec::evaluate_symbolic(op, arguments).toInt();
}

}  // namespace

TEST_CASE("floor division and modulo follow Python for every combination of signs") {
  CHECK(integer(SymbolicOp::floor_div, 7, 2) == 3);
  CHECK(integer(SymbolicOp::floor_div, -7, 2) == -4);
  CHECK(integer(SymbolicOp::floor_div, 7, -2) == -4);
  CHECK(integer(SymbolicOp::floor_div, -7, -2) == 3);
  CHECK(integer(SymbolicOp::mod, 7, 3) == 1);
  CHECK(integer(SymbolicOp::mod, -7, 3) == 2);
  CHECK(integer(SymbolicOp::mod, 7, -3) == -2);
  CHECK(integer(SymbolicOp::mod, INT64_MIN, -1) == 0);
}

TEST_CASE("arithmetic that leaves 64 bit or divides by zero is an error, not a wrong size") {
  CHECK_THROWS_AS(integer(SymbolicOp::mul, INT64_MAX, 2), Error);
  CHECK_THROWS_AS(integer(SymbolicOp::add, INT64_MAX, 1), Error);
  CHECK_THROWS_AS(integer(SymbolicOp::sub, INT64_MIN, 1), Error);
  CHECK_THROWS_AS(integer(SymbolicOp::floor_div, 1, 0), Error);
  CHECK_THROWS_AS(integer(SymbolicOp::mod, 1, 0), Error);
  CHECK_THROWS_AS(integer(SymbolicOp::pow, 10, 40), Error);
  CHECK_THROWS_AS(integer(SymbolicOp::floor_div, INT64_MIN, -1), Error);
}

TEST_CASE("powers end early where they can") {
  CHECK(integer(SymbolicOp::pow, 3, 4) == 81);
  CHECK(integer(SymbolicOp::pow, 1, INT64_MAX) == 1);
  CHECK(integer(SymbolicOp::pow, -1, INT64_MAX) == -1);
  CHECK(integer(SymbolicOp::pow, 0, 5) == 0);
}

TEST_CASE("an int beside a float becomes a float, true division always gives one") {
  const std::vector<c10::IValue> mixed{std::int64_t{3}, 0.5};
  CHECK(exec::evaluate_symbolic(SymbolicOp::mul, mixed).toDouble() == 1.5);
  const std::vector<c10::IValue> ints{std::int64_t{3}, std::int64_t{2}};
  CHECK(exec::evaluate_symbolic(SymbolicOp::true_div, ints).toDouble() == 1.5);
}

TEST_CASE("an assertion of the model that fails says what the model said") {
  const std::vector<c10::IValue> arguments{false, std::string("u0 >= 1")};
  CHECK_THROWS_WITH_AS(exec::evaluate_symbolic(SymbolicOp::assert_scalar, arguments),
                       doctest::Contains("u0 >= 1"), Error);
}

TEST_CASE("targets that are not ours are left to the dispatcher") {
  graph::Node node;
  node.target = "torch.ops.aten.add.Tensor";
  CHECK_FALSE(exec::find_symbolic(node).has_value());
  node.target = "_operator.add";
  CHECK(exec::find_symbolic(node) == SymbolicOp::add);
}
