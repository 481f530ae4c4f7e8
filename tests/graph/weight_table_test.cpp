#include "graph/weight_table.hpp"

#include <doctest/doctest.h>

#include "graph/graph_text.hpp"
#include "lowtide/error.hpp"

using namespace lowtide;
using namespace lowtide::graph;

namespace {

WeightTable table() {
  WeightTable result;
  result.files = {{"data/weights/weight_0", 64, 128}, {"data/constants/tensor_0", 256, 16}};
  result.weights = {{"embed", 0, {DType::f32, {8, 4}, {4, 1}, 0}},
                    {"head", 0, {DType::f32, {4, 8}, {1, 4}, 0}},
                    {"mask", 1, {DType::f32, {4}, {1}, 0}}};
  result.parameters_and_buffers = {{"embed", 0}, {"head", 1}};
  result.constants = {{"mask", 2}};
  return result;
}

}  // namespace

TEST_CASE("weights are found by the name and kind of a graph's inputs") {
  const Program program = parse_graph(
      "weights head = h: f32[4, 8]\ninputs x: f32[1]\nbuffers embed = e: f32[8, 4]\nbuffers mask = b: "
      "f32[4]\nconstants mask = m: f32[4]\nfixed n "
      "= 1\noutputs x");
  CHECK(table().resolve(program.graph) == std::vector<std::uint32_t>{1, UINT32_MAX, 0, 2, 2, UINT32_MAX});
  CHECK(table().total_bytes() == 144);
}

TEST_CASE("a weight that is missing or of another kind is an error that names it") {
  const auto resolve = [](const char* text) { table().resolve(parse_graph(text).graph); };
  CHECK_THROWS_WITH_AS(resolve("weights tail = t: f32[4]\noutputs t"),
                       "the graph uses the weight 'tail', which the archive does not have", ArchiveError);
  CHECK_THROWS_WITH_AS(resolve("weights head = t: f16[4, 8]\noutputs t"),
                       "weight 'head' is f32[4, 8] in the archive, but the graph takes f16[4, 8]",
                       ArchiveError);
  CHECK_THROWS_WITH_AS(resolve("weights head = t: f32[s0, 8]\noutputs t"),
                       "weight 'head' is f32[4, 8] in the archive, but the graph takes f32[a symbol, 8]",
                       ArchiveError);
  CHECK_THROWS_AS(resolve("weights head = t: f32[4]\noutputs t"), ArchiveError);
  CHECK_THROWS_AS(resolve("constants head = t: f32[4, 8]\noutputs t"),
                  ArchiveError);  // a parameter, no constant
}
