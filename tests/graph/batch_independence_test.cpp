#include "graph/batch_independence.hpp"

#include <doctest/doctest.h>

#include "graph/graph_text.hpp"
#include "lowtide/error.hpp"

using namespace lowtide;
using namespace lowtide::graph;

namespace {

BatchIndependence follow(const std::string& text, const char* symbol = "s0") {
  Program program = parse_graph(text);
  return find_batch_independence(program, program.symbols.intern(symbol));
}

/// Why s0 is no batch of x; empty where it is one.
std::string obstacle(const std::string& statements) {
  return follow("inputs x: f32[s0, 4, 6]\nweights w = w: f32[6, 6]\nweights t = t: f32[50, 6]\n" + statements)
      .obstacle;
}

bool says(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("layers that work on each index alone leave a batch, wherever it travels") {
  const BatchIndependence batch = follow(R"(inputs x: f32[s0, 4, 6]
weights w = w: f32[6, 6]
n = aten::sym_size.int(self=x, dim=0): sym_int(s0)
a = aten::linear(input=x, weight=w, bias=None): f32[s0, 4, 6]
b = aten::reshape(self=a, shape=[-1, 6]): f32[4*s0, 6]
c = aten::relu_(self=b): f32[4*s0, 6]
d = aten::view(self=c, size=[n, 2, 2, 6]): f32[s0, 2, 2, 6]
e = aten::permute(self=d, dims=[1, 0, 2, 3]): f32[2, s0, 2, 6]
f = aten::mean.dim(self=e, dim=[0]): f32[s0, 2, 6]
g = aten::softmax.int(self=f, dim=-1): f32[s0, 2, 6]
h = aten::transpose.int(self=g, dim0=0, dim1=2): f32[6, 2, s0]
outputs h, b, n
)");
  CHECK(batch.obstacle == "");
  REQUIRE(batch.output_dims.size() == 3);
  CHECK(batch.output_dims[0] == 2);
  CHECK(batch.output_dims[1] == 0);
  CHECK_FALSE(batch.output_dims[2].has_value());
}

TEST_CASE("the first node that mixes is named with its operator, its line and the reason") {
  CHECK(obstacle("y = aten::mean.dim(self=x, dim=[0, 1]): f32[6]   # model.py:12 in forward\noutputs y\n") ==
        "aten::mean.dim 'y' (model.py:12 in forward) reduces it");
}

TEST_CASE("what mixes indices is refused") {
  const std::vector<std::pair<std::string, std::string>> kMixers{
      {"aten::sum(self=x): f32[]", "reduces all dimensions"},
      {"aten::softmax.int(self=x, dim=-3): f32[s0, 4, 6]", "works along it"},
      {"aten::cumsum(self=x, dim=0): f32[s0, 4, 6]", "works along it"},
      {"aten::flip(self=x, dims=[1, 0]): f32[s0, 4, 6]", "works along it"},
      {"aten::slice.Tensor(self=x, dim=0, start=1, end=9223372036854775807): f32[s0 - 1, 4, 6]",
       "cuts a part out of it"},
      {"aten::select.int(self=x, dim=0, index=0): f32[4, 6]", "takes it apart"},
      {"aten::cat(tensors=[x, x]): f32[2*s0, 4, 6]", "puts something beside it"},
      {"aten::repeat(self=x, repeats=[2, 1, 1]): f32[2*s0, 4, 6]", "repeats it along itself"},
      {"aten::batch_norm(input=x, weight=None, bias=None, running_mean=None, running_var=None, "
       "training=true, "
       "momentum=0.1, eps=0.1, cudnn_enabled=true): f32[s0, 4, 6]",
       "normalises over it"},
      {"aten::roll(self=x, shifts=[1]): f32[s0, 4, 6]", "moves all elements"},
      {"aten::rand_like(self=x): f32[s0, 4, 6]", "not known"},
      {"aten::dropout(input=x, p=0.5, train=true): f32[s0, 4, 6]", "random"},
      {"custom::thing(self=x): f32[s0, 4, 6]", "not known"},
      {"aten::index_select(self=x, dim=0, index=t): f32[50, 4, 6]", "picks from it"},
      {"aten::unsqueeze(self=x, dim=0): f32[?, 4, 6]", "no multiple"},
  };
  for (const auto& [node, reason] : kMixers) {
    CAPTURE(node);
    CHECK(says(obstacle("y = " + node + "\noutputs y\n"), reason));
  }
  const std::string by_itself = R"(a = aten::select.int(self=x, dim=1, index=0): f32[s0, 6]
b = aten::transpose.int(self=a, dim0=0, dim1=1): f32[6, s0]
)";
  CHECK(says(obstacle(by_itself + "y = aten::mm(self=a, mat2=b): f32[s0, s0]\noutputs y\n"),
             "multiplies it with itself"));
  CHECK(says(obstacle(by_itself + "y = aten::mm(self=b, mat2=a): f32[6, 6]\noutputs y\n"),
             "multiplies it with itself"));
  CHECK(says(obstacle(by_itself + "y = aten::linear(input=b, weight=w, bias=None): f32[6, 6]\noutputs y\n"),
             "sums over it"));
}

TEST_CASE("attention is a batch in front and no batch among the tokens") {
  const std::string node =
      "y = aten::scaled_dot_product_attention(query=q, key=q, value=q): f32[2, s0, s1, 8]\noutputs y\n";
  CHECK(follow("inputs q: f32[2, s0, s1, 8]\n" + node, "s0").obstacle == "");
  CHECK(says(follow("inputs q: f32[2, s0, s1, 8]\n" + node, "s1").obstacle,
             "lets each index look at the others"));
}

TEST_CASE("a batch folded with others stays one; a result must have it outermost, so that it can be cut") {
  CHECK(obstacle("y = aten::view(self=x, size=[-1, 6]): f32[4*s0, 6]\noutputs y\n") == "");
  CHECK(says(obstacle("a = aten::permute(self=x, dims=[1, 0, 2]): f32[4, s0, 6]\n"
                      "y = aten::reshape(self=a, shape=[-1, 6]): f32[4*s0, 6]\noutputs y\n"),
             "another dimension folded around it"));
  CHECK(follow("inputs x: f32[s1, s0, 6]\ny = aten::view(self=x, size=[-1]): f32[6*s0*s1]\noutputs y\n", "s1")
            .obstacle == "");
  CHECK(says(follow("inputs x: f32[s1, s0, 6]\ny = aten::view(self=x, size=[-1]): f32[6*s0*s1]\noutputs y\n")
                 .obstacle,
             "another dimension folded around it"));
}

TEST_CASE("tokens folded around the batch are unfolded again, and nothing else may come between") {
  const std::string fold =
      "a = aten::permute(self=x, dims=[1, 0, 2]): f32[4, s0, 6]\n"
      "b = aten::reshape(self=a, shape=[-1, 6]): f32[4*s0, 6]\n"
      "c = aten::linear(input=b, weight=w, bias=None): f32[4*s0, 6]\n";
  CHECK(obstacle(fold + "y = aten::view(self=c, size=[4, -1, 6]): f32[4, s0, 6]\noutputs y\n") == "");
  CHECK(obstacle(fold + "d = aten::view(self=c, size=[2, -1, 6]): f32[2, 2*s0, 6]\n"
                        "y = aten::view(self=d, size=[4, -1, 6]): f32[4, s0, 6]\noutputs y\n") == "");
  // Of 4*s0 rows, tokens outermost, s0 groups of 4 are not the batch.
  CHECK(says(obstacle(fold + "y = aten::view(self=c, size=[-1, 4, 6]): f32[s0, 4, 6]\noutputs y\n"),
             "folds another dimension around it"));
  CHECK(says(obstacle(fold + "d = aten::reshape(self=x, shape=[-1, 6]): f32[4*s0, 6]\n"
                             "y = aten::add.Tensor(self=c, other=d): f32[4*s0, 6]\noutputs y\n"),
             "with itself at another dimension"));
}

TEST_CASE("what is added to a product has its tokens folded as the product has") {
  const std::string folds =
      "a = aten::reshape(self=x, shape=[-1, 6]): f32[4*s0, 6]\n"
      "b = aten::permute(self=x, dims=[1, 0, 2]): f32[4, s0, 6]\n"
      "c = aten::reshape(self=b, shape=[-1, 6]): f32[4*s0, 6]\n";
  const std::string unfold = "y = aten::view(self=d, size=[4, -1, 6]): f32[4, s0, 6]\noutputs y\n";
  CHECK(obstacle(folds + "d = aten::addmm(self=c, mat1=c, mat2=w): f32[4*s0, 6]\n" + unfold) == "");
  CHECK(says(obstacle(folds + "d = aten::addmm(self=a, mat1=c, mat2=w): f32[4*s0, 6]\n" + unfold),
             "'d' combines it with itself at another dimension"));
}

TEST_CASE("what is written over keeps its indices where they were") {
  const std::string folds =
      "a = aten::reshape(self=x, shape=[-1, 6]): f32[4*s0, 6]\n"
      "b = aten::permute(self=x, dims=[1, 0, 2]): f32[4, s0, 6]\n"
      "c = aten::reshape(self=b, shape=[-1, 6]): f32[4*s0, 6]\n"
      "e = aten::relu(self=a): f32[4*s0, 6]\n";
  const std::string rest = "y = aten::view(self=e, size=[-1, 4, 6]): f32[s0, 4, 6]\noutputs y\n";
  CHECK(obstacle(folds + "d = aten::neg.out(self=a, out=e): f32[4*s0, 6]\n" + rest) == "");
  CHECK(says(obstacle(folds + "d = aten::neg.out(self=c, out=e): f32[4*s0, 6]\n" + rest),
             "writes into 'e', which has it elsewhere"));
  CHECK(says(obstacle("b = aten::permute(self=x, dims=[1, 0, 2]): f32[4, s0, 6]\n"
                      "d = aten::neg.out(self=b, out=x): f32[4, s0, 6]\noutputs x\n"),
             "writes into 'x', which has it elsewhere"));
}

TEST_CASE("a size is a multiple of the batch at every batch, small and large") {
  const std::string size = "n = aten::sym_size.int(self=x, dim=0): sym_int(s0)\n";
  for (const std::string other : {"max(32, s0)", "min(512, s0)", "s0 % 1000"}) {
    CAPTURE(other);
    CHECK(says(obstacle(size + "m = custom.number(a=n): sym_int(" + other +
                        ")\ny = aten::zeros(size=[m]): f32[" + other + "]\noutputs y\n"),
               "no multiple"));
  }
  CHECK(obstacle(size + "m = torch.sym_max(a=n, b=1): sym_int(max(1, s0))\n"
                        "y = aten::zeros(size=[m]): f32[max(1, s0)]\noutputs y\n") == "");
}

TEST_CASE("other sizes are equal where they are so small and large") {
  const auto combined = [](const std::string& one, const std::string& other) {
    return follow("ranges s1: [, 600]\ninputs x: f32[s0, " + one + "]\ninputs z: f32[s0, " + other +
                  "]\na = aten::view(self=x, size=[-1]): f32[s0*(" + one +
                  ")]\nb = aten::view(self=z, size=[-1]): f32[s0*(" + other +
                  ")]\ny = aten::add.Tensor(self=a, other=b): f32[s0*(" + one + ")]\noutputs y\n")
        .obstacle;
  };
  CHECK(combined("s1", "s1") == "");
  CHECK(combined("s1//32", "s1//32") == "");  // nothing below 32
  CHECK(combined("s1", "min(600, s1)") == "");
  for (const std::string other : {"max(32, s1)", "min(512, s1)", "s1 % 590"}) {
    CAPTURE(other);
    CHECK(says(combined("s1", other), "combines it with itself at another dimension"));
  }
  // Of sizes that are large together, the product still is a number.
  CHECK(follow("inputs x: f32[s0, 64, s1, s2, s3]\n"
               "y = aten::view(self=x, size=[-1]): f32[64*s0*s1*s2*s3]\noutputs y\n")
            .obstacle == "");
}

TEST_CASE("nodes without results, tensors and dimensions are refused where these are needed") {
  const std::string size = "n = aten::sym_size.int(self=x, dim=0): sym_int(s0)\n";
  const std::string rest = "y = aten::relu(self=x): f32[s0, 4, 6]\noutputs y\n";
  CHECK(obstacle(size + "None = aten::arange(end=n)\n" + rest) == "");
  CHECK(says(obstacle(size + "y = aten::reshape(shape=[n]): f32[s0]\noutputs y\n"), "has no tensor"));
  CHECK(says(obstacle(size + "y = aten::transpose(dim0=n): f32[s0]\noutputs y\n"), "has no tensor"));
  CHECK(says(obstacle(size + "y = aten::expand(size=[n]): f32[s0]\noutputs y\n"), "has no tensor"));
  CHECK(says(obstacle("y = aten::sum.out(dim=[1], out=x): f32[s0, 6]\noutputs y\n"), "has no tensor"));
  CHECK(says(follow("inputs x: f32[s0], k: f32[]\nn = aten::sym_size.int(self=x, dim=0): sym_int(s0)\n"
                    "m = aten::sym_size.int(self=k, dim=0, out=n): sym_int(s0)\noutputs m\n")
                 .obstacle,
             "a dimension that its argument does not have"));
  CHECK(follow("inputs x: f32[3, s0, 6], h: f32[2, s0, 6]\n"
               "None = aten::lstm.input(input=x, hx=[h, h], params=[], has_biases=true, num_layers=2, "
               "dropout=0., train=false, bidirectional=false, batch_first=false)\n"
               "y = aten::relu(self=x): f32[3, s0, 6]\noutputs y\n")
            .obstacle == "");
}

TEST_CASE("a dimension that may be 1 is not squeezed, in place or not") {
  for (const std::string name : {"squeeze", "squeeze_"}) {
    CAPTURE(name);
    CHECK(says(obstacle("y = aten::" + name + "(self=x): f32[s0, 4, 6]\noutputs y\n"), "where it is 1"));
    CHECK(says(obstacle("y = aten::" + name + ".dim(self=x, dim=0): f32[s0, 4, 6]\noutputs y\n"),
               "where it is 1"));
    CHECK(obstacle("y = aten::" + name + ".dim(self=x, dim=1): f32[s0, 4, 6]\noutputs y\n") == "");
  }
}

TEST_CASE("the number of indices must not enter the arithmetic") {
  const std::string size = "n = aten::sym_size.int(self=x, dim=0): sym_int(s0)\n";
  CHECK(says(obstacle(size + "y = aten::div.Tensor(self=x, other=n): f32[s0, 4, 6]\noutputs y\n"),
             "computes with the size itself"));
  CHECK(says(obstacle(size + "m = _operator.mul(a=n, b=2): sym_int(2*s0)\n"
                             "y = aten::mul.Scalar(self=t, other=m): f32[50, 6]\noutputs y\n"),
             "computes with the size itself"));
  CHECK(says(obstacle(size + "y = aten::full(size=[2], fill_value=n): f32[2]\noutputs y\n"),
             "computes with the size itself"));
  CHECK(obstacle(size + "y = aten::zeros(size=[n, 3]): f32[s0, 3]\noutputs y, n\n") == "");
  CHECK(says(obstacle(size + "m = _operator.add(a=n, b=1): sym_int(s0 + 1)\n"
                             "y = aten::zeros(size=[m]): f32[s0 + 1]\noutputs y\n"),
             "no multiple"));
}

TEST_CASE("a number beside the results is one that the shapes of a job tell") {
  const auto number = [](const std::string& recorded) {
    return follow(
               "inputs x: f32[s0, s1], k: i64[]\n"
               "n = aten::sym_size.int(self=x, dim=0): sym_int(s0)\n"
               "u = aten::item(self=k): sym_int(u0)\n"
               "m = _operator.add(a=n, b=u): sym_int(" +
               recorded + ")\noutputs m\n")
        .obstacle;
  };
  CHECK(number("s0 + s1") == "");
  for (const std::string recorded : {"s0 + u0", "u0", "u1", "?"}) {
    CAPTURE(recorded);
    CHECK(says(number(recorded), "output 0 is a number computed from its size and from data"));
  }
}

TEST_CASE("positions may pick rows of the batch itself and of tables, in order and no other way") {
  const std::string positions =
      "n = aten::sym_size.int(self=x, dim=0): sym_int(s0)\n"
      "i = aten::arange(end=n): i64[s0]\n";
  CHECK(obstacle(positions + "y = aten::index.Tensor(self=x, indices=[i]): f32[s0, 4, 6]\noutputs y\n") ==
        "");
  CHECK(obstacle(positions + "y = aten::index.Tensor(self=t, indices=[i]): f32[s0, 6]\noutputs y\n") == "");
  CHECK(obstacle(positions + "j = aten::add.Tensor(self=i, other=0): i64[s0]\n"
                             "y = aten::index.Tensor(self=x, indices=[j]): f32[s0, 4, 6]\noutputs y\n") ==
        "");
  for (const std::string other :
       {"aten::add.Tensor(self=i, other=1)", "aten::remainder.Scalar(self=i, other=2)", "aten::neg(self=i)",
        "aten::to.dtype(self=i, dtype=dtype i8)"}) {
    CAPTURE(other);
    const std::string type = other.find("i8") == std::string::npos ? "i64" : "i8";
    CHECK(says(obstacle(positions + "j = " + other + ": " + type +
                        "[s0]\ny = aten::index.Tensor(self=x, indices=[j]): f32[s0, 4, 6]\noutputs y\n"),
               "picks from it"));
  }
  // Made or kept in a dtype that cannot hold every position.
  for (const std::string type : {"i32", "i8", "u8", "i16", "f16", "f32"}) {
    CAPTURE(type);
    const std::string refusal =
        obstacle("n = aten::sym_size.int(self=x, dim=0): sym_int(s0)\ni = aten::arange(end=n): " + type +
                 "[s0]\nj = aten::to.dtype(self=i, dtype=dtype i64): i64[s0]\n"
                 "y = aten::index.Tensor(self=x, indices=[j]): f32[s0, 4, 6]\noutputs y\n");
    CHECK((type == "i32" ? refusal.empty() : says(refusal, "picks from it")));
  }
  // Written over, it no longer counts.
  CHECK(says(obstacle(positions + "j = aten::mul_.Tensor(self=i, other=2): i64[s0]\n"
                                  "y = aten::index.Tensor(self=x, indices=[i]): f32[s0, 4, 6]\noutputs y\n"),
             "picks from it"));
  // Positions of a dimension that only the caller makes as long.
  CHECK(says(follow("inputs x: f32[s0, 4]\ninputs m: f32[s1, 4]\n" + positions +
                    "y = aten::index.Tensor(self=m, indices=[i]): f32[s0, 4]\noutputs y\n")
                 .obstacle,
             "another size"));
}

TEST_CASE("rows must not be written into memory that all indices share") {
  Program program = parse_graph(R"(inputs x: f32[s0, 6]
buffers cache = cache: f32[50, 6]
n = aten::sym_size.int(self=x, dim=0): sym_int(s0)
rows = aten::slice.Tensor(self=cache, dim=0, start=0, end=n): f32[s0, 6]
y = aten::copy_(self=rows, src=x): f32[s0, 6]
z = aten::add.Tensor(self=cache, other=1): f32[50, 6]
outputs z
)");
  for (Node& node : program.graph.nodes) node.traits.outputs.resize(node.produced().size());
  program.graph.nodes[1].traits.outputs[0].aliases = {program.graph.value_named("cache")};
  program.graph.nodes[2].traits.outputs[0].aliases = {program.graph.value_named("rows")};
  program.graph.nodes[2].traits.writes = {program.graph.value_named("rows")};
  const BatchIndependence batch = find_batch_independence(program, program.symbols.intern("s0"));
  CHECK(says(batch.obstacle, "writes into"));
  CHECK(says(batch.obstacle, "which all indices share"));
}

TEST_CASE("inputs that share the dimension are followed together, and numbers that must agree are refused") {
  CHECK(follow("inputs x: f32[s0, 4]\ninputs h: f32[2, s0, 4]\n"
               "a = aten::select.int(self=h, dim=0, index=1): f32[s0, 4]\n"
               "y = aten::add.Tensor(self=x, other=a): f32[s0, 4]\noutputs y\n")
            .obstacle == "");
  CHECK(says(follow("inputs x: f32[s0, 4]\ninputs h: f32[s0, s0]\n"
                    "y = aten::relu(self=x): f32[s0, 4]\noutputs y\n")
                 .obstacle,
             "two dimensions"));
  CHECK(says(follow("inputs x: f32[s0, 4]\ninputs n: sym_int(s0)\n"
                    "y = aten::relu(self=x): f32[s0, 4]\noutputs y\n")
                 .obstacle,
             "a number that must agree"));
}

TEST_CASE("a result that does not depend on the batch is left as it is") {
  const BatchIndependence batch = follow(
      "inputs x: f32[s0, 4]\ninputs k: f32[3]\na = aten::sum(self=k): f32[]\n"
      "y = aten::mul.Tensor(self=x, other=a): f32[s0, 4]\noutputs y, a\n");
  CHECK(batch.obstacle == "");
  CHECK(batch.output_dims == std::vector<std::optional<std::size_t>>{0, std::nullopt});
}
