#include "graph/graph_text.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "lowtide/error.hpp"

using namespace lowtide;
using namespace lowtide::graph;

namespace {

std::string error_of(const std::string& text) {
  try {
    verify(parse_graph(text).graph);
  } catch (const ArchiveError& error) {
    return error.what();
  }
  return {};
}

/// Everything that the text can hold. Written as the printer writes it.
constexpr const char* kEverything = R"(program "my model"
ranges s0: [2, 512]
ranges u0: [0, ]
hints s0: 4
guard "L['x'].size()[0] <= 512"
weights embed.weight = w: f32[1000, 64]
weights "head weight" = w2: f32[64, 1000] strides [1, 64]
buffers count = b_count: i64[]
constants lifted_0 = c: bf16[3] offset (2) device "cuda:0"
inputs ids: i64[s0, 8]
inputs "xs[0]" = xs_0: f32[s0, 2*s0 + 1]
fixed n = 2
fixed scale = 0.5
fixed flag = true
fixed mode = "a \"b\"\x0a"
fixed nothing = None
objects queue = q: object
inputs k: sym_int(s1)
x = aten::embedding(weight=w, indices=ids): f32[s0, 8, 64]   # model.py:12 in forward
[y, z] = aten::split.Tensor(self=x, split_size=32, dim=2): f32[s0, 8, 32] strides [512, 64, 1], f32[s0, 8, 32] strides [512, 64, 1] offset (32) @split
n, None, unused = aten::native_layer_norm(y, [32], None, None, 1e-05): f32[s0, 8, 32], tensor
size = aten::sym_size.int(self=n, dim=0): sym_int(s0)
big = _operator.gt(a=size, b=3): sym_bool
half = _operator.truediv(size, 2): sym_float
aten::_assert_scalar(self=big, assert_msg="size must be > 3, not 'small'") @assert_1
full = aten::full(size=[size, 2, k], fill_value=-inf, dtype=dtype f32, layout=layout 7, device=device cuda:1, pin_memory=false): f32[s0, 2, s1]
many = my::op(floats=[1.0, 2.5, half], flags=[true, big], names=["a", "b"], none=[None, z], all=[y, z], c=complex(1.0, -2.0), f=memory_format 2, o=operator "aten.add, x", q=object queue): f32[(s0 - 1)//2, max(1, s0 % 4)]
empty = my::op.out(ints=[], floats[], bools[], strings[], tensors[], [1, 2], [0.5], [true, false]): f32[0]
`None` = "torch.ops.odd name"(dtype=many, nan): f32[]
graph body {
  inputs x: f32[s0]
  graph inner {
    inputs x: f32[s0]
    outputs x
  }
  y = torch.ops.higher_order.map_impl(graph inner, [x]): f32[s0]
  outputs y
}
graph other {
  outputs 1
}
loop = torch.ops.higher_order.while_loop(graph body, graph other, x): f32[s0]
updates buffer count = b_count
updates input "xs[0]" = xs_0
updates parameter embed.weight = w
losses n
outputs x
outputs rows = size
outputs k = 3.5
outputs None
)";

}  // namespace

TEST_CASE("a printed graph can be read again and prints the same text") {
  const std::string text = kEverything;
  const Program program = parse_graph(text);
  CHECK(print_graph(program) == text);
  verify(program.graph);
}

TEST_CASE("the hand-written form needs no argument names, strides or node names") {
  const Program program = parse_graph(R"(
  # two inputs on one line
  inputs ids: i64[s0, s1] strides [s1, 1], bias: f32[64]
  weights embed.weight = w: f32[1000, 64]
  x = aten::embedding(w, ids): f32[s0, s1, 64]
  [y, z] = aten::split.Tensor(x, 32, dim=2): f32[s0, s1, 32], f32[s0, s1, 32]   # model.py:12
  outputs y, last = z
)");
  const Graph& graph = program.graph;
  REQUIRE(graph.nodes.size() == 2);
  CHECK(graph.nodes[0].target == "torch.ops.aten.embedding.default");
  CHECK(graph.nodes[0].op_name() == "aten::embedding");
  CHECK(graph.nodes[0].overload() == "");
  CHECK(graph.nodes[0].read_values() == std::vector{graph.value_named("w"), graph.value_named("ids")});
  CHECK(graph.nodes[1].overload() == "Tensor");
  CHECK(graph.nodes[1].source == "model.py:12");
  CHECK(graph.nodes[1].name == "y");
  REQUIRE(graph.nodes[1].find_argument("dim") != nullptr);
  CHECK(std::get<std::int64_t>(graph.nodes[1].find_argument("dim")->value) == 2);
  CHECK(graph.nodes[1].find_argument("axis") == nullptr);
  CHECK(graph.nodes[1].produced().size() == 2);
  CHECK(program.user_input_names == std::vector<std::string>{"ids", "bias"});
  CHECK(program.user_output_names == std::vector<std::string>{"0000", "last"});
  CHECK(graph.values[graph.value_named("x")].meta.strides[0].to_string(program.symbols) == "64*s1");
  CHECK(graph.inputs[2].target == "embed.weight");
}

TEST_CASE("arguments keep their kinds") {
  const Program program = parse_graph(kEverything);
  const auto& nodes = program.graph.nodes;
  const auto argument = [&](std::size_t node, const char* name) {
    return nodes.at(node).find_argument(name)->value;
  };
  CHECK(std::get<MixedList<std::int64_t>>(argument(7, "size")).items.size() == 3);
  CHECK(std::get<double>(argument(7, "fill_value")) == -HUGE_VAL);
  CHECK(std::get<ScalarTypeArg>(argument(7, "dtype")).dtype == DType::f32);
  CHECK(std::get<DeviceArg>(argument(7, "device")).index == 1);
  CHECK(std::get<MixedList<double>>(argument(8, "floats")).items.size() == 3);
  CHECK(std::get<MixedList<bool>>(argument(8, "flags")).items.size() == 2);
  CHECK(std::get<std::vector<std::string>>(argument(8, "names")) == std::vector<std::string>{"a", "b"});
  CHECK_FALSE(std::get<TensorList>(argument(8, "none")).values[0].has_value());
  CHECK(std::get<std::complex<double>>(argument(8, "c")) == std::complex<double>(1, -2));
  CHECK(std::get<OperatorArg>(argument(8, "o")).name == "aten.add, x");
  CHECK(std::get<std::vector<std::int64_t>>(nodes[9].arguments[5].value) == std::vector<std::int64_t>{1, 2});
  CHECK(std::get<TensorList>(nodes[9].arguments[4].value).values.empty());
  CHECK(std::isnan(std::get<double>(nodes[10].arguments[1].value)));
  CHECK(std::get<GraphArg>(nodes[11].arguments[0].value).graph->nodes.size() == 1);
  CHECK(std::get<GraphArg>(nodes[11].arguments[1].value).graph->nodes.empty());
  CHECK_FALSE(nodes[4].is_operator());
  CHECK(nodes[4].op_name() == "_operator.gt");
  CHECK(nodes[4].overload() == "");
}

TEST_CASE("one node prints as one line") {
  const Program program =
      parse_graph("inputs x: f32[2]\ny = aten::mul.Scalar(self=x, other=2.0): f32[2] # a.py:1\noutputs y");
  CHECK(print_node(program, program.graph, program.graph.nodes[0]) ==
        "y = aten::mul.Scalar(self=x, other=2.0): f32[2]   # a.py:1");
}

TEST_CASE("errors in a text name the line and the column") {
  CHECK(error_of("inputs x: f32[2]\ny = aten::relu(z): f32[2]") ==
        "graph text, line 2, column 17: there is no value 'z' yet");
  CHECK(error_of("inputs x: f33[2]") == "graph text, line 1, column 14: unknown dtype 'f33'");
  CHECK(error_of("inputs x: f32[2]\n\ninputs x: f32[2]") ==
        "graph text, line 3, column 9: value 'x' exists already");
  CHECK(error_of("inputs x f32[2]") == "graph text, line 1, column 10: expected ':'");
  CHECK(error_of("inputs x: f32[2] garbage") == "graph text, line 1, column 18: unexpected text");
  CHECK(error_of("inputs x: f32[2, 3] strides [1]") ==
        "graph text, line 1, column 32: sizes and strides differ in number");
}

TEST_CASE("no malformed text is accepted") {
  for (const char* text : {"x =",
                           "x = aten::",
                           "x = aten::relu",
                           "x = aten::relu(",
                           "inputs x: f32[2",
                           "inputs \"x: f32[2]",
                           "ranges s0: 3",
                           "hints s0: x",
                           "y = a::b([1, \"a\"]): f32[]",
                           "y = a::b([1, 2.0]): f32[]",
                           "y = a::b([[1]]): f32[]",
                           "y = a::b(1e): f32[]",
                           "y = a::b()",
                           "graph g {",
                           "y = a::b(graph g): f32[]",
                           "graph g {\n}\ny = a::b(): f32[]",
                           "y = a::b(foo[]): f32[]",
                           "y = a::b(complex(1, 2)): f32[]",
                           "outputs",
                           "updates buffer x",
                           "}",
                           "= a::b()",
                           "y, = a::b(): f32[]",
                           "inputs x: sym_int",
                           "fixed n = [1]",
                           "y = a::b(device ): f32[]"}) {
    CAPTURE(text);
    CHECK(error_of(text) != "");
  }
}

TEST_CASE("graphs are not nested without limit") {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "graph g {\n";
  CHECK(error_of(text).find("nested too deeply") != std::string::npos);
}

TEST_CASE("verification finds values that are used too early, produced twice or out of range") {
  Program program =
      parse_graph("inputs x: f32[2]\ny = aten::relu(x): f32[2]\nz = aten::relu(y): f32[2]\noutputs z");
  verify(program.graph);
  SUBCASE("used before it is produced") {
    std::swap(program.graph.nodes[0], program.graph.nodes[1]);
    CHECK_THROWS_WITH_AS(verify(program.graph),
                         "value 'y' is used by node 'z' ('aten::relu') before anything produces it",
                         ArchiveError);
  }
  SUBCASE("produced twice") {
    program.graph.nodes.push_back(program.graph.nodes[0]);
    CHECK_THROWS_WITH_AS(verify(program.graph), "value 'y' is produced again by node 'y' ('aten::relu')",
                         ArchiveError);
  }
  SUBCASE("an input twice") {
    program.graph.inputs.push_back(program.graph.inputs[0]);
    CHECK_THROWS_AS(verify(program.graph), ArchiveError);
  }
  SUBCASE("out of range") {
    program.graph.nodes[0].arguments[0].value = Ref{77};
    CHECK_THROWS_WITH_AS(verify(program.graph), "value number 77 at node 'y' ('aten::relu') does not exist",
                         ArchiveError);
  }
  SUBCASE("an output that nothing produces") {
    program.graph.nodes.pop_back();
    CHECK_THROWS_AS(verify(program.graph), ArchiveError);
  }
  SUBCASE("inside a nested graph") {
    Graph body;
    body.add_value({"v", ValueKind::tensor, {}, {}});
    body.outputs.push_back({OutputKind::user, Ref{0}, {}});
    program.graph.nodes[0].arguments.push_back({"", GraphArg{"body", std::make_shared<Graph>(body)}});
    CHECK_THROWS_AS(verify(program.graph), ArchiveError);
  }
}

TEST_CASE("names of values are unique and found") {
  Graph graph;
  const ValueId id = graph.add_value({"x", ValueKind::tensor, {}, {}});
  CHECK(graph.value_named("x") == id);
  CHECK_FALSE(graph.find_value("y").has_value());
  CHECK_THROWS_AS(graph.value_named("y"), ArchiveError);
  CHECK_THROWS_AS(graph.add_value({"x", ValueKind::tensor, {}, {}}), ArchiveError);
}

TEST_CASE("targets are split into namespace, name and overload") {
  const auto node = [](const char* target) {
    Node result;
    result.target = target;
    return result;
  };
  CHECK(node("torch.ops.aten.add.Tensor").op_name() == "aten::add");
  CHECK(node("torch.ops.aten.add.Tensor").overload() == "Tensor");
  CHECK(node("torch.ops.ns.dotted.name.default").op_name() == "ns::dotted.name");
  CHECK(node("torch.ops.ns.dotted.name.default").overload() == "");
  CHECK(node("torch.ops.higher_order.cond").op_name() == "higher_order::cond");
  CHECK(node("torch.sym_min").op_name() == "torch.sym_min");
  CHECK_FALSE(node("torch.sym_min").is_operator());
  CHECK_FALSE(node("torch.ops.x").is_operator());
  CHECK(node("").op_name() == "");
}
