#include "graph/input_binding.hpp"

#include <doctest/doctest.h>

#include "graph/graph_text.hpp"
#include "lowtide/error.hpp"

using namespace lowtide;
using namespace lowtide::graph;

namespace {

std::string error_of(const Program& program, const InputDescriptions& inputs) {
  try {
    bind_inputs(program, inputs);
  } catch (const InputError& error) {
    return error.what();
  }
  return {};
}

InputDescription tensor(DType dtype, std::vector<std::int64_t> sizes) {
  return {dtype, std::move(sizes), {}};
}
InputDescription integer(std::int64_t value) {
  return {DType::i64, {}, value};
}

std::int64_t value_of(Program& program, const SymbolValues& values, const char* symbol) {
  return values.at(program.symbols.intern(symbol)).value();
}

const char* const kTwoInputs = R"(
ranges s0: [2, ], s1: [2, 512]
inputs ids: i64[s0, s1], mask: f32[s0, s1]
y = aten::mul.Tensor(ids, mask): f32[s0, s1]
outputs y
)";

}  // namespace

TEST_CASE("sizes of inputs bind the symbols") {
  Program program = parse_graph(kTwoInputs);
  const SymbolValues values =
      bind_inputs(program, {tensor(DType::i64, {2, 64}), tensor(DType::f32, {2, 64})});
  CHECK(value_of(program, values, "s0") == 2);
  CHECK(value_of(program, values, "s1") == 64);
}

TEST_CASE("a minimum of 2 is no bound: sizes of 1 and 0 are accepted") {
  const Program program = parse_graph(kTwoInputs);
  CHECK(error_of(program, {tensor(DType::i64, {1, 1}), tensor(DType::f32, {1, 1})}) == "");
  CHECK(error_of(program, {tensor(DType::i64, {0, 1}), tensor(DType::f32, {0, 1})}) == "");
}

TEST_CASE("each mistake in an input is named with what was expected and what was given") {
  const Program program = parse_graph(kTwoInputs);
  const auto ids = tensor(DType::i64, {2, 64}), mask = tensor(DType::f32, {2, 64});
  CHECK(error_of(program, {ids}) == "the model takes 2 inputs and was given 1");
  CHECK(error_of(program, {ids, std::nullopt}) ==
        "input 'mask' is missing; the model takes f32 of shape [s0, s1]");
  CHECK(error_of(program, {tensor(DType::i32, {2, 64}), mask}) ==
        "input 'ids' has dtype i32 where the model takes i64");
  CHECK(error_of(program, {tensor(DType::i64, {2, 64, 3}), mask}) ==
        "input 'ids' has shape [2, 64, 3] where the model takes [s0, s1]: 3 dimensions where 2 are expected");
  CHECK(error_of(program, {tensor(DType::i64, {2, 513}), tensor(DType::f32, {2, 513})}) ==
        "input 'ids' has shape [2, 513] where the model takes [s0, s1]: size 513 at dimension 1 is above the "
        "largest that the "
        "model was exported for, 512; nearest allowed: 512");
  CHECK(error_of(program, {ids, tensor(DType::f32, {2, 63})}) ==
        "input 'mask' has shape [2, 63] where the model takes [s0, s1]: size 63 at dimension 1 where s1 is "
        "64 (from input 'ids')");
}

TEST_CASE("fixed sizes and real minima are checked") {
  const Program program = parse_graph("ranges w: [13, ]\ninputs x: f32[1, 3, w]\noutputs x");
  CHECK(error_of(program, {tensor(DType::f32, {1, 4, 20})}) ==
        "input 'x' has shape [1, 4, 20] where the model takes [1, 3, w]: size 4 at dimension 1 where 3 is "
        "expected");
  CHECK(error_of(program, {tensor(DType::f32, {1, 3, 12})}) ==
        "input 'x' has shape [1, 3, 12] where the model takes [1, 3, w]: size 12 at dimension 2 is below the "
        "smallest that the "
        "model was exported for, 13; nearest allowed: 13");
  CHECK(error_of(program, {tensor(DType::f32, {1, 3, 13})}) == "");
}

TEST_CASE("sizes that are expressions are solved or checked") {
  Program program = parse_graph("inputs x: f32[2*s0 + 1], y: f32[s0*s1], z: f32[s1, s0 + s1]\noutputs x");
  const auto x = tensor(DType::f32, {7}), y = tensor(DType::f32, {12}), z = tensor(DType::f32, {4, 7});
  const SymbolValues values = bind_inputs(program, {x, y, z});
  CHECK(value_of(program, values, "s0") == 3);
  CHECK(value_of(program, values, "s1") == 4);
  CHECK(
      error_of(program, {tensor(DType::f32, {8}), y, z}) ==
      "input 'x' has shape [8] where the model takes [2*s0 + 1]: size 8 at dimension 0 where 7 is expected");
  CHECK(error_of(program, {x, tensor(DType::f32, {13}), z}).find("where 12 is expected") !=
        std::string::npos);
}

TEST_CASE("symbolic integers are bound from the values of 0-d tensors") {
  Program program = parse_graph("ranges s1: [3, 8]\ninputs x: f32[s0], n: sym_int(s1)\noutputs x");
  const auto x = tensor(DType::f32, {5});
  CHECK(value_of(program, bind_inputs(program, {x, integer(4)}), "s1") == 4);
  CHECK(error_of(program, {x, integer(9)}) ==
        "input 'n': 9 is above the largest that the model was exported for, 8; nearest allowed: 8");
  CHECK(error_of(program, {x, tensor(DType::f32, {})}) ==
        "input 'n' has dtype f32 and shape [] where the model takes an integer (0-d tensor)");
  CHECK(error_of(program, {x, tensor(DType::i64, {1})}) != "");
  CHECK(error_of(program, {x, std::nullopt}) ==
        "input 'n' is missing; the model takes an integer (0-d tensor)");
  const SymbolValues unknown = bind_inputs(program, {x, tensor(DType::i64, {})});
  CHECK_FALSE(unknown.at(program.symbols.intern("s1")).has_value());
}

TEST_CASE("inputs that were fixed at export may be left out, but not changed") {
  const Program program = parse_graph(
      "fixed n = 2\nfixed flag = true\nfixed scale = 0.5\nfixed opt = None\nfixed mode = \"x\"\noutputs "
      "None");
  const std::optional<InputDescription> none;
  CHECK(error_of(program, {none, none, none, none, none}) == "");
  CHECK(error_of(program, {integer(2), InputDescription{DType::boolean, {}, 1}, tensor(DType::f64, {}), none,
                           none}) == "");
  CHECK(error_of(program, {integer(3), none, none, none, none}) ==
        "input 'n' was fixed as 2 when the model was exported, 3 was given; leave it out or export the model "
        "with the other value");
  CHECK(error_of(program, {none, InputDescription{DType::boolean, {}, 0}, none, none, none})
            .find("fixed as True") != std::string::npos);
  CHECK(error_of(program, {none, none, tensor(DType::boolean, {}), none, none}).find("takes a float") !=
        std::string::npos);
  CHECK(error_of(program, {none, none, none, integer(1), none}).find("fixed as None") != std::string::npos);
  CHECK(error_of(program, {none, none, none, none, integer(1)}).find("fixed as 'x'") != std::string::npos);
}

TEST_CASE("the sample inputs follow from the recorded hints") {
  const Program program = parse_graph(
      "hints s0: 3, s1: 10\ninputs x: f32[s0, 2*s1], n: sym_int(s1 + 1)\nfixed k = 2\nfixed flag = "
      "false\nfixed f = 0.5\nfixed none = "
      "None\noutputs x");
  const auto samples = sample_inputs(program);
  REQUIRE(samples.has_value());
  CHECK(*samples == InputDescriptions{tensor(DType::f32, {3, 20}), integer(11), integer(2),
                                      InputDescription{DType::boolean, {}, 0}, tensor(DType::f64, {}),
                                      std::nullopt});
  CHECK(error_of(program, *samples) == "");
}

TEST_CASE("without hints there are no sample inputs") {
  CHECK_FALSE(sample_inputs(parse_graph(kTwoInputs)).has_value());
  CHECK(sample_inputs(parse_graph("inputs x: f32[2, 3]\noutputs x")).has_value());
}

TEST_CASE("recorded sizes are evaluated for every value") {
  const Program program = parse_graph(R"(
inputs x: f32[s0, 4]
y = aten::t(x): f32[4, s0] strides [1, 4] offset (s0)
k = aten::sym_size.int(x, 0): sym_int(s0)
z = my::op(x): tensor
outputs y)");
  const Graph& graph = program.graph;
  const ShapeTable table = evaluate_shapes(program, bind_inputs(program, {tensor(DType::f32, {6, 4})}));
  CHECK(table.bounded);
  const auto& y = table.metas.at(graph.value_named("y"));
  REQUIRE(y.has_value());
  CHECK(y->dtype == DType::f32);
  CHECK(y->sizes == std::vector<std::int64_t>{4, 6});
  CHECK(y->strides == std::vector<std::int64_t>{1, 4});
  CHECK(y->storage_offset == 6);
  CHECK_FALSE(table.upper_bound.at(graph.value_named("y")));
  CHECK_FALSE(table.metas.at(graph.value_named("k")).has_value());
  CHECK_FALSE(table.metas.at(graph.value_named("z")).has_value());
}

TEST_CASE("what depends on data is bounded by what nonzero and its like look at") {
  const Program program = parse_graph(R"(
ranges u0: [0, 9223372036854775806], u1: [0, 9223372036854775806], u2: [0, 9223372036854775806]
inputs x: f32[s0, 3], m: bool[3]
i = aten::nonzero(x): i64[u0, 2]
y = aten::index.Tensor(x, i): f32[u0, 8]
v = aten::masked_select(x, m): f32[u1]
[q, r] = aten::_unique2(x, true, true): f32[u2], i64[s0, 3]
outputs y)");
  const ShapeTable table = evaluate_shapes(
      program, bind_inputs(program, {tensor(DType::f32, {5, 3}), tensor(DType::boolean, {3})}));
  CHECK(table.bounded);
  const auto sizes = [&](const char* name) {
    return table.metas.at(program.graph.value_named(name)).value().sizes;
  };
  CHECK(sizes("i") == std::vector<std::int64_t>{15, 2});
  CHECK(sizes("y") == std::vector<std::int64_t>{15, 8});
  CHECK(sizes("v") == std::vector<std::int64_t>{15});
  CHECK(sizes("q") == std::vector<std::int64_t>{15});
  CHECK(table.upper_bound.at(program.graph.value_named("y")));
  CHECK_FALSE(table.upper_bound.at(program.graph.value_named("r")));
}

TEST_CASE("data-dependent sizes take the recorded maximum, and the larger end where they fall") {
  const Program program = parse_graph(R"(
ranges u0: [3, 8]
inputs k: i64[]
n = aten::item(k): sym_int(u0)
a = aten::ones([n]): f32[2*u0]
b = aten::ones([n]): f32[10 - u0]
outputs a)");
  const ShapeTable table = evaluate_shapes(program, bind_inputs(program, {tensor(DType::i64, {})}));
  CHECK(table.bounded);
  CHECK(table.metas.at(program.graph.value_named("a")).value().sizes == std::vector<std::int64_t>{16});
  CHECK(table.metas.at(program.graph.value_named("b")).value().sizes == std::vector<std::int64_t>{7});
}

TEST_CASE("without a bound the sizes are unknown and the table says so") {
  const Program program = parse_graph(R"(
ranges u0: [0, 9223372036854775806]
inputs k: i64[]
n = aten::item(k): sym_int(u0)
a = aten::ones([n]): f32[u0]
outputs a)");
  const ShapeTable table = evaluate_shapes(program, bind_inputs(program, {tensor(DType::i64, {})}));
  CHECK_FALSE(table.bounded);
  CHECK_FALSE(table.metas.at(program.graph.value_named("a")).has_value());
  SymbolValues known(program.symbols.size(), 4);
  CHECK(evaluate_shapes(program, known).metas.at(program.graph.value_named("a")).value().sizes ==
        std::vector<std::int64_t>{4});
}

TEST_CASE("negative and overflowing sizes are unknown") {
  const Program program = parse_graph(
      "inputs x: f32[s0]\ny = a::b(x): f32[s0 - 10]\nz = a::b(x): f32[s0**20, s0**20]\noutputs y");
  const ShapeTable table = evaluate_shapes(program, bind_inputs(program, {tensor(DType::f32, {8})}));
  CHECK_FALSE(table.bounded);
  CHECK_FALSE(table.metas.at(program.graph.value_named("y")).has_value());
  CHECK_FALSE(table.metas.at(program.graph.value_named("z")).has_value());
}
