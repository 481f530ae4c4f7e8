#include "exec/reuse_operands.hpp"

#include <doctest/doctest.h>

#include "exec/operator_traits.hpp"
#include "graph/graph_text.hpp"

using namespace lowtide;

namespace {

/// The graph's statements after the pass, one a line.
std::string rewritten(const char* text) {
  graph::Program program = graph::parse_graph(text);
  exec::annotate_operators(program);
  exec::reuse_operands(program);
  std::string lines;
  for (const graph::Node& node : program.graph.nodes) {
    lines += graph::print_node(program, program.graph, node) + "\n";
    CHECK(exec::reuses_operand(node) == !node.traits.writes.empty());
  }
  return lines;
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a chain of activations writes over its dying operands, whichever side they are on") {
  const std::string lines = rewritten(R"(
inputs x: f32[s0, 4]
a = aten::neg(self=x): f32[s0, 4]
b = aten::exp(self=x): f32[s0, 4]
c = aten::relu(self=a): f32[s0, 4]
d = aten::sub.Tensor(self=b, other=c): f32[s0, 4]
e = aten::mul.Tensor(self=x, other=d): f32[s0, 4]
outputs e)");
  CHECK(contains(lines, "a = aten::neg(self=x)"));  // x is the caller's
  CHECK(contains(lines, "c = aten::relu_(self=a)"));
  CHECK(contains(lines, "d = aten::sub.out(self=b, other=c, out=b)"));
  CHECK(contains(lines, "e = aten::mul.out(self=x, other=d, out=d)"));
}

TEST_CASE("what is read later under any name is left alone") {
  const std::string lines = rewritten(R"(
inputs x: f32[4, 4]
a = aten::neg(self=x): f32[4, 4]
v = aten::t(self=a): f32[4, 4] strides [1, 4]
b = aten::exp(self=a): f32[4, 4]
c = aten::add.Tensor(self=b, other=v): f32[4, 4]
d = aten::exp(self=c): f32[4, 4]
outputs c, d)");
  CHECK(contains(lines, "b = aten::exp(self=a)"));                      // v still shows a
  CHECK(contains(lines, "c = aten::add.out(self=b, other=v, out=b)"));  // b dies
  CHECK(contains(lines, "d = aten::exp(self=c)"));                      // c is a result
}

TEST_CASE("an operand that is also seen through a view in the same node is left alone") {
  const std::string lines = rewritten(R"(
inputs x: f32[4, 4]
a = aten::neg(self=x): f32[4, 4]
v = aten::select.int(self=a, dim=0, index=1): f32[4] strides [1] offset (4)
b = aten::mul.Tensor(self=a, other=v): f32[4, 4]
c = aten::mul.Tensor(self=b, other=b): f32[4, 4]
outputs c)");
  CHECK(contains(lines, "b = aten::mul.Tensor(self=a, other=v)"));
  CHECK(contains(lines, "c = aten::mul.out(self=b, other=b, out=b)"));  // the very same tensor twice is fine
}

TEST_CASE("a piece of a larger tensor does not keep it alive for a result") {
  const std::string lines = rewritten(R"(
inputs x: f32[8, 4]
a = aten::neg(self=x): f32[8, 4]
p = aten::slice.Tensor(self=a, dim=0, start=0, end=4): f32[4, 4]
b = aten::exp(self=p): f32[4, 4]
w = aten::view(self=b, size=[16]): f32[16]
c = aten::exp(self=w): f32[16]
outputs c)");
  CHECK(contains(lines, "b = aten::exp(self=p)"));
  CHECK(
      contains(lines, "c = aten::exp.out(self=w, out=w)"));  // a view of everything is as good as the tensor
}

TEST_CASE("the result must agree in size, type and layout, and weights are never written") {
  const std::string lines = rewritten(R"(
inputs x: f32[4, s0], y: f32[s0]
weights w = w: f32[4, s0]
a = aten::neg(self=y): f32[s0]
b = aten::add.Tensor(self=a, other=x): f32[4, s0]
c = aten::gt.Tensor(self=b, other=x): bool[4, s0]
d = aten::where.self(condition=c, self=w, other=b): f32[4, s0]
e = aten::t(self=d): f32[s0, 4] strides [1, s0]
f = aten::add.Tensor(self=e, other=1): f32[s0, 4]
outputs f)");
  CHECK(contains(lines, "b = aten::add.Tensor(self=a, other=x)"));  // a is broadcast
  CHECK(contains(lines, "d = aten::where.self_out(condition=c, self=w, other=b, out=b)"));
  CHECK(contains(lines, "f = aten::add.Tensor(self=e, other=1)"));  // other strides than the export's
}

TEST_CASE("pieces of operators whose schemas keep quiet about aliasing are left alone, and what they show") {
  const std::string lines = rewritten(R"(
inputs x: f32[8, 4]
h = aten::neg(self=x): f32[8, 4]
[p, q] = aten::unsafe_split.Tensor(self=h, split_size=4, dim=0): f32[4, 4], f32[4, 4]
y = aten::relu(self=p): f32[4, 4]
z = aten::exp(self=q): f32[4, 4]
s = aten::exp(self=h): f32[8, 4]
g = aten::exp(self=x): f32[8, 4]
c = aten::channel_shuffle(self=g, groups=1): f32[8, 4]
d = aten::exp(self=c): f32[8, 4]
e = aten::conj_physical(self=d): f32[8, 4]
f = aten::exp(self=e): f32[8, 4]
outputs y, z, s, f)");
  CHECK(contains(lines, "y = aten::relu(self=p)"));
  CHECK(contains(lines, "z = aten::exp(self=q)"));
  CHECK(contains(lines, "d = aten::exp(self=c)"));
  CHECK(contains(lines, "f = aten::exp(self=e)"));
}
