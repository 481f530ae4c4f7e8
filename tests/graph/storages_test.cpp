#include "graph/storages.hpp"

#include <doctest/doctest.h>

#include "graph/graph_text.hpp"
#include "graph/view_rules.hpp"

using namespace lowtide;
using namespace lowtide::graph;

namespace {

/// A program, what the operators' schemas say about it, and the analysis.
struct Analysis {
  explicit Analysis(const char* text) : program(parse_graph(text)) {
    for (Node& node : program.graph.nodes) node.traits.outputs.resize(node.produced().size());
  }
  ValueId id(const char* name) const { return program.graph.value_named(name); }
  AliasTraits& traits(const char* result) {
    for (Node& node : program.graph.nodes) {
      const auto produced = node.produced();
      for (std::size_t i = 0; i < produced.size(); ++i) {
        if (produced[i] == id(result)) return node.traits.outputs[i];
      }
    }
    throw std::out_of_range(result);
  }
  void view(const char* result, const char* base) { traits(result).aliases.push_back(id(base)); }
  void may_view(const char* result, const char* base) { traits(result).may_alias.push_back(id(base)); }
  void writes(std::size_t node, const char* value) {
    program.graph.nodes.at(node).traits.writes.push_back(id(value));
  }

  void run(std::vector<std::uint32_t> weight_file = {}) {
    shapes = evaluate_shapes(program, {});
    table = analyse_storages(program.graph, shapes, weight_file);
  }
  const Storage& of(const char* name) const { return table.storages.at(table.of_value.at(id(name))); }
  bool shared(const char* a, const char* b) const {
    return table.of_value.at(id(a)) == table.of_value.at(id(b));
  }

  Program program;
  ShapeTable shapes;
  StorageTable table;
};

ConcreteMeta meta(std::vector<std::int64_t> sizes, std::vector<std::int64_t> strides,
                  DType dtype = DType::f32) {
  return {dtype, std::move(sizes), std::move(strides), 0};
}

Node node_of(const char* target) {
  Node node;
  node.target = target;
  return node;
}

}  // namespace

TEST_CASE("a storage lives from the node that produces it to the last one that reads it") {
  Analysis a(R"(
inputs x: f32[4]
y = aten::relu(x): f32[4]
z = aten::neg(y): f32[4]
dead = aten::neg(y): f32[8]
w = aten::add.Tensor(z, y): f32[4]
outputs w)");
  a.run();
  CHECK(a.of("y").first == 0);
  CHECK(a.of("y").last == 3);
  CHECK(a.of("z").first == 1);
  CHECK(a.of("z").last == 3);
  CHECK(a.of("dead").last == 2);
  CHECK_FALSE(a.of("dead").used);
  CHECK(a.of("dead").bytes == 32);
  CHECK(a.of("w").last == 4);
  CHECK(a.of("w").is_output);
  CHECK(a.of("y").used);
  CHECK_FALSE(a.of("y").is_output);
  CHECK(a.of("x").origin == StorageOrigin::user_input);
  CHECK(a.of("x").bytes == 16);
  CHECK(a.of("y").origin == StorageOrigin::produced);
}

TEST_CASE("views share their base's storage and prolong its life") {
  Analysis a(R"(
inputs x: f32[4, 4]
y = aten::relu(x): f32[4, 4]
v = aten::t(y): f32[4, 4] strides [1, 4]
w = aten::select.int(v, 0, 1): f32[4] strides [4] offset (1)
z = aten::neg(w): f32[4]
outputs z)");
  a.view("v", "y");
  a.view("w", "v");
  a.run();
  CHECK(a.shared("y", "w"));
  CHECK(a.of("y").values == std::vector{a.id("y"), a.id("v"), a.id("w")});
  CHECK(a.of("y").bytes == 64);
  CHECK(a.of("y").last == 3);
  CHECK_FALSE(a.shared("z", "w"));
  CHECK(a.table.storages.size() == 3);
}

TEST_CASE("the pieces of a split share one storage, however many there are") {
  Analysis a(R"(
inputs x: f32[4]
[p, q] = aten::split.Tensor(x, 2): f32[2], f32[2] offset (2)
y = aten::add.Tensor(p, q): f32[2]
outputs y)");
  a.view("p", "x");
  a.view("q", "x");
  a.run();
  CHECK(a.shared("p", "q"));
  CHECK(a.of("q").origin == StorageOrigin::user_input);
  CHECK(a.of("q").last == 1);
}

TEST_CASE("an in-place result is its input, and the storage counts as written") {
  Analysis a(R"(
inputs x: f32[4]
y = aten::neg(x): f32[4]
v = aten::view(y, [2, 2]): f32[2, 2]
z = aten::relu_(v): f32[2, 2]
outputs y)");
  a.view("v", "y");
  a.view("z", "v");
  a.writes(2, "v");
  a.run();
  CHECK(a.shared("y", "z"));
  CHECK(a.of("y").written);
  CHECK_FALSE(a.of("x").written);
  CHECK(a.of("z").is_output);
}

TEST_CASE("tied weights are one storage; a write through one name counts for all") {
  Analysis a(R"(
weights embed = e: f32[8, 4]
weights head = h: f32[4, 8] strides [1, 4]
buffers cache = c: f32[4]
inputs x: f32[4]
y = aten::mv(h, x): f32[4]
z = aten::add_.Tensor(e, y): f32[8, 4]
outputs y)");
  a.view("z", "e");
  a.writes(1, "e");
  a.run({0, 0, 1, UINT32_MAX});
  CHECK(a.shared("e", "h"));
  CHECK(a.of("h").origin == StorageOrigin::weight);
  CHECK(a.of("h").written);
  CHECK(a.of("h").last == 1);
  CHECK_FALSE(a.of("c").used);
  CHECK_FALSE(a.shared("c", "e"));
  CHECK(a.of("h").bytes == 128);
}

TEST_CASE("values that are no tensors have no storage") {
  Analysis a("inputs x: f32[4]\nn = aten::sym_size.int(x, 0): sym_int(4)\noutputs n");
  a.run();
  CHECK(a.table.of_value.at(a.id("n")) == kNoStorage);
}

TEST_CASE("mutated buffers keep their new values to the end") {
  Analysis a(
      "buffers b = c: f32[4]\ny = aten::neg(c): f32[4]\nz = aten::neg(y): f32[4]\nupdates buffer b = "
      "y\noutputs z");
  a.run({0});
  CHECK(a.of("y").last == 2);
  CHECK(a.of("y").is_output);
}

TEST_CASE("values without recorded meta have an unknown size") {
  Analysis a("inputs x: f32[4]\ny = my::op(x): tensor\nv = aten::view(y): f32[2]\noutputs v");
  a.view("v", "y");
  a.run();
  CHECK_FALSE(a.of("y").size_known);
  CHECK(a.of("y").bytes == 0);
  CHECK(a.of("x").size_known);
}

TEST_CASE("a reshape that strides allow is a view, otherwise a copy") {
  Analysis a(R"(
inputs x: f32[4, 6]
y = aten::neg(x): f32[4, 6]
t = aten::t(y): f32[6, 4] strides [1, 6]
v = aten::reshape(y, [24]): f32[24]
c = aten::reshape(t, [24]): f32[24]
z = aten::add.Tensor(v, c): f32[24]
outputs z)");
  a.view("t", "y");
  a.may_view("v", "y");
  a.may_view("c", "t");
  a.run();
  CHECK(a.shared("v", "y"));
  CHECK_FALSE(a.shared("c", "y"));
  CHECK(a.of("y").last == 4);
  CHECK(a.of("c").first == 3);
}

TEST_CASE("contiguous and to are the argument itself where nothing changes") {
  Analysis a(R"(
inputs x: f32[4, 6]
y = aten::neg(x): f32[4, 6]
t = aten::t(y): f32[6, 4] strides [1, 6]
same = aten::contiguous(y): f32[4, 6]
copy = aten::contiguous(t): f32[6, 4]
to_same = aten::to.dtype(y, dtype=dtype f32): f32[4, 6]
to_half = aten::to.dtype(y, dtype=dtype f16): f16[4, 6]
forced = aten::to.dtype(y, dtype=dtype f32, copy=true): f32[4, 6]
outputs same, copy, to_same, to_half, forced)");
  a.view("t", "y");
  for (const char* name : {"same", "to_same", "to_half", "forced"}) a.may_view(name, "y");
  a.may_view("copy", "t");
  a.run();
  CHECK(a.shared("same", "y"));
  CHECK(a.shared("to_same", "y"));
  CHECK_FALSE(a.shared("copy", "y"));
  CHECK_FALSE(a.shared("to_half", "y"));
  CHECK_FALSE(a.shared("forced", "y"));
}

TEST_CASE("what may alias and cannot be decided has own bytes and keeps its bases alive") {
  Analysis a(R"(
weights k = w: f32[4]
inputs x: f32[4]
y = aten::neg(x): f32[4]
m = my::maybe(y, w): f32[4]
n = my::maybe(m): f32[4]
z = aten::relu_(n): f32[4]
u = aten::neg(n): f32[4]
outputs u)");
  a.may_view("m", "y");
  a.may_view("m", "w");
  a.may_view("n", "m");
  a.view("z", "n");
  a.writes(3, "n");
  a.run({0, UINT32_MAX});
  CHECK_FALSE(a.shared("m", "y"));
  CHECK(a.of("m").bytes == 16);
  CHECK(a.of("n").last == 4);
  CHECK(a.of("m").last == 4);
  CHECK(a.of("y").last == 4);
  CHECK(a.of("w").last == 4);
  CHECK(a.of("w").written);
  CHECK_FALSE(a.of("x").written);
}

TEST_CASE("the bytes of a storage reach from its start to the last element of its widest member") {
  CHECK(storage_span_bytes(meta({4, 6}, {6, 1})) == 96);
  CHECK(storage_span_bytes(meta({4, 6}, {1, 4}, DType::f16)) == 48);
  CHECK(storage_span_bytes(meta({3, 2}, {100, 1})) == 808);
  CHECK(storage_span_bytes(meta({1000, 1000}, {0, 0})) == 4);
  CHECK(storage_span_bytes(meta({0, 5}, {INT64_MAX, INT64_MAX})) == 0);
  CHECK(storage_span_bytes(meta({}, {}, DType::c128)) == 16);
  CHECK_FALSE(storage_span_bytes(meta({INT64_MAX, 2}, {INT64_MAX, 1})).has_value());
  CHECK_FALSE(storage_span_bytes(meta({-1}, {1})).has_value());
  CHECK_FALSE(storage_span_bytes(meta({2}, {-1})).has_value());

  Analysis a("inputs x: f32[4]\ny = my::lstm(x): f32[2, 4] offset (8)\noutputs y");
  a.run();
  CHECK(a.of("y").bytes == 64);
}

TEST_CASE("view strides are those of ATen") {
  using Strides = std::vector<std::int64_t>;
  CHECK(view_strides({4, 6}, {6, 1}, {24}) == Strides{1});
  CHECK(view_strides({4, 6}, {6, 1}, {2, 2, 3, 2}) == Strides{12, 6, 2, 1});
  CHECK(view_strides({4, 6}, {6, 1}, {4, 1, 6}) == Strides{6, 6, 1});
  CHECK_FALSE(view_strides({6, 4}, {1, 6}, {24}).has_value());
  CHECK(view_strides({6, 4}, {1, 6}, {2, 3, 4}) == Strides{3, 1, 6});
  CHECK(view_strides({4, 6}, {8, 1}, {4, 2, 3}) == Strides{8, 3, 1});
  CHECK_FALSE(view_strides({4, 6}, {8, 1}, {24}).has_value());
  CHECK_FALSE(view_strides({4, 6}, {8, 1}, {3, 8}).has_value());
  CHECK(view_strides({}, {}, {1, 1}) == Strides{1, 1});
  CHECK(view_strides({1}, {1}, {}) == Strides{});
  CHECK(view_strides({3, 1, 2}, {2, 77, 1}, {6}) == Strides{1});
  CHECK(view_strides({5}, {0}, {5, 1}) == Strides{0, 0});
  CHECK_FALSE(view_strides({2, 2}, {INT64_MAX, 1}, {4}).has_value());
}

TEST_CASE("operators that are the argument itself outside of training depend on their train flag") {
  Node dropout = node_of("torch.ops.aten.dropout.default");
  const ConcreteMeta same = meta({2}, {1});
  CHECK(decide_alias(dropout, &same, &same) == AliasDecision::either);
  dropout.arguments.push_back({"train", false});
  CHECK(decide_alias(dropout, &same, &same) == AliasDecision::alias);
  dropout.arguments[0].value = true;
  CHECK(decide_alias(dropout, &same, &same) == AliasDecision::either);
}

TEST_CASE("without metas only operators that never alias are decided") {
  CHECK(decide_alias(node_of("torch.ops.aten.reshape.default"), nullptr, nullptr) == AliasDecision::either);
  CHECK(decide_alias(node_of("torch.ops.aten.contiguous.default"), nullptr, nullptr) ==
        AliasDecision::either);
  CHECK(decide_alias(node_of("torch.ops.aten.pad.default"), nullptr, nullptr) == AliasDecision::fresh);
  const ConcreteMeta a = meta({2, 3}, {3, 1}), b = meta({6}, {2});
  CHECK(decide_alias(node_of("torch.ops.aten.reshape.default"), &a, &b) ==
        AliasDecision::either);  // contradicts ATen
}
