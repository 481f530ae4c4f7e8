// Inputs that the model was not exported for: what is said of them, and which size would do.
#include "graph/guard_check.hpp"

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

InputDescription sized(std::vector<std::int64_t> sizes) {
  return {DType::f32, std::move(sizes), {}};
}
InputDescription integer(std::int64_t value) {
  return {DType::i64, {}, value};
}

/// What is said where a single input x of one dimension, under these guards, has this size.
std::string said(const std::string& guards, std::int64_t size) {
  return error_of(parse_graph(guards + "\ninputs x: f32[s0]\noutputs x"), {sized({size})});
}

}  // namespace

TEST_CASE("a size outside of a guard is named with the guard and the nearest allowed size") {
  const char* const eight = "guard \"(L['x'].size()[0] % 8) == 0\"";
  CHECK(said(eight, 16) == "");
  CHECK(said(eight, 7) ==
        "input 'x', dimension 0 is 7, but the export requires that it is divisible by 8 (guard "
        "(L['x'].size()[0] % 8) == 0); nearest allowed: 8");
  CHECK(said(eight, 12).ends_with("nearest allowed: 16"));  // of two as near, the one that padding reaches
  CHECK(said(eight, 11).ends_with("nearest allowed: 8"));
  CHECK(said("guard \"L['x'].size()[0] != 1\"", 1) ==
        "input 'x', dimension 0 is 1, but the export requires that it is not 1 (guard L['x'].size()[0] != "
        "1); nearest allowed: 2");
  CHECK(said("guard \"(L['x'].size()[0] % 5) == 2\"", 8).find("it is 2 more than a multiple of 5") !=
        std::string::npos);
  CHECK(said("guard \"3 <= L['x'].size()[0]\"", 2).find("it is at least 3 ") != std::string::npos);
}

TEST_CASE("a condition of several steps is shown as it is") {
  CHECK(said("guard \"(((-1) + (((-1) + L['x'].size()[0]) // 4)) % 2) == 0\"", 18) ==
        "input 'x', dimension 0 is 18, which the export does not allow (guard (((-1) + (((-1) + "
        "L['x'].size()[0]) // 4)) % 2) == 0); nearest allowed: 16");
}

TEST_CASE("the nearest allowed size meets all guards and ranges") {
  const std::string both = "guard \"(L['x'].size()[0] % 8) == 0\"\nguard \"L['x'].size()[0] != 16\"\n";
  CHECK(said(both, 15).ends_with("nearest allowed: 8"));
  CHECK(said("ranges s0: [13, 40]\n" + both, 15).ends_with("nearest allowed: 24"));
  CHECK(said("ranges s0: [13, 40]\n" + both, 5) ==
        "input 'x' has shape [5] where the model takes [s0]: size 5 at dimension 0 is below the smallest "
        "that the model was exported for, 13; nearest allowed: 24");
  CHECK(said("ranges s0: [13, 44]\n" + both, 1'000'000).ends_with("for, 44; nearest allowed: 40"));
}

TEST_CASE("a bound far away is found by its number") {
  CHECK(said("guard \"L['x'].size()[0] <= 512\"", 100'000).ends_with("nearest allowed: 512"));
  CHECK(said("guard \"L['x'].size()[0] > 5000\"", 3).ends_with("nearest allowed: 5001"));
}

TEST_CASE("an integer as far away as one can be has the nearest bound, too") {
  const Program program =
      parse_graph("guard \"L['n'] == 5 or L['n'] == 50\"\ninputs x: f32[s0], n: sym_int(s1)\noutputs x");
  CHECK(error_of(program, {sized({4}), integer(INT64_MIN + 10)}).ends_with("nearest allowed: 5"));
}

TEST_CASE("a size is refused by the guards that look at nothing else, whatever the other sizes are") {
  const Program program = parse_graph(R"(
guard "(L['x'].size()[0] % 8) == 0"
guard "L['y'].size()[0] != 17"
guard "L['x'].size()[0] < L['x'].size()[1]"
guard "L['x'].size()[1] > 1000"
guard "8 < L['n']"
guard "1 > 2"
inputs x: f32[s0, s1], y: f32[2*s0 + 1], z: f32[s0*s1], n: sym_int(s0), m: sym_int(s2)
outputs x)");
  const auto refusal = [&](std::int64_t size) { return find_refusal(program, {0, 0}, size).value_or(""); };
  CHECK(refusal(16) == "");
  CHECK(refusal(13) ==
        "input 'x', dimension 0 is 13, but the export requires that it is divisible by 8 (guard "
        "(L['x'].size()[0] % 8) == 0); nearest allowed: 16");
  // In terms of the size that was asked about.
  CHECK(refusal(8) ==
        "input 'y', dimension 0 is 17, but the export requires that it is not 17 (guard L['y'].size()[0] != "
        "17); nearest allowed: 16 for input 'x', dimension 0");
}

TEST_CASE("no size is named where none is found") {
  CHECK(said("guard \"L['x'].size()[0] < 0\"", 3).ends_with("(guard L['x'].size()[0] < 0)"));
  CHECK(said("guard \"1 > 2\"", 3) ==
        "the model was exported with a condition that never holds (guard 1 > 2)");
}

TEST_CASE("a minimum of 2 stays no bound beside guards") {
  const std::string guard = "ranges s0: [2, ]\nguard \"L['x'].size()[0] <= 512\"";
  CHECK(said(guard, 1) == "");
  CHECK(said(guard, 0) == "");
  CHECK(said("ranges s0: [3, ]", 2) != "");
}

TEST_CASE("sizes that must agree are both named, and either may change") {
  const Program program =
      parse_graph("guard \"L['y'].size()[0] == L['x'].size()[0]\"\ninputs x: f32[s0], y: f32[s1]\noutputs x");
  CHECK(error_of(program, {sized({4}), sized({4})}) == "");
  CHECK(error_of(program, {sized({4}), sized({6})}) ==
        "input 'y', dimension 0 is 6, but the export requires that it equals input 'x', dimension 0, which "
        "is 4 (guard L['y'].size()[0] == L['x'].size()[0]); nearest allowed: 4 for input 'y', dimension 0");
}

TEST_CASE("sizes that share a symbol change together") {
  const Program program = parse_graph(R"(
guard "(L['x'].size()[1] % 4) == 0"
guard "L['y'].size()[0] != 17"
inputs x: f32[s0, s1], y: f32[2*s1 + 1], z: f32[s1]
outputs x)");
  CHECK(error_of(program, {sized({2, 12}), sized({25}), sized({12})}) == "");
  const std::string refused = error_of(program, {sized({2, 9}), sized({19}), sized({9})});
  CHECK(refused.ends_with("nearest allowed: 12"));  // with 8, y would have 17
}

TEST_CASE("a size that is an expression of a symbol is varied in its steps") {
  const Program program = parse_graph("ranges s0: [2, 5]\ninputs x: f32[8*s0]\noutputs x");
  CHECK(error_of(program, {sized({48})}).ends_with("for, 5; nearest allowed: 40"));
  const Program guarded =
      parse_graph("guard \"(L['x'].size()[0] % 8) == 0\"\ninputs x: f32[8*s0]\noutputs x");
  CHECK(error_of(guarded, {sized({44})}).ends_with("nearest allowed: 48"));
}

TEST_CASE("another size that is wrong does not hide the nearest of this one") {
  const Program program = parse_graph(
      "guard \"(L['x'].size()[0] % 4) == 0\"\nguard \"(L['x'].size()[1] % 4) == 0\"\ninputs x: f32[s0, "
      "s1]\noutputs x");
  CHECK(error_of(program, {sized({7, 9})}).ends_with("nearest allowed: 8"));
}

TEST_CASE("conditions on several sizes count while they hold, and not when another size breaks them") {
  const char* const kRest = "\nguard \"(L['x'].size()[0] % 4) == 0\"\ninputs x: f32[s0, s1]\noutputs x";
  const Program apart = parse_graph(std::string("guard \"L['x'].size()[0] != L['x'].size()[1]\"") + kRest);
  CHECK(error_of(apart, {sized({7, 8})}).ends_with("nearest allowed: 4"));
  const Program other = parse_graph(
      "guard \"(L['x'].size()[0] % 4) == 0\"\nguard \"0*L['x'].size()[0] + L['x'].size()[1] == 5\"\ninputs "
      "x: "
      "f32[s0, s1]\noutputs x");
  CHECK(error_of(other, {sized({7, 9})}).ends_with("nearest allowed: 8"));
}

TEST_CASE("integers of the caller are guarded where they are known") {
  const Program program =
      parse_graph("guard \"8 // L['n'] >= 2\"\ninputs x: f32[s0], n: sym_int(s1)\noutputs x");
  CHECK(error_of(program, {sized({4}), integer(4)}) == "");
  CHECK(error_of(program, {sized({4}), integer(5)}).ends_with("nearest allowed: 4"));
  CHECK(error_of(program, {sized({4}), integer(0)}) ==
        "input 'n' is 0, where a condition of the export cannot be computed (guard 8 // L['n'] >= 2); "
        "nearest allowed: 1");
  CHECK(error_of(program, {sized({4}), InputDescription{DType::i64, {}, {}}}) == "");
}

TEST_CASE("guards that are not evaluated or not decidable refuse nothing") {
  CHECK(said("guard \"L['x'].stride()[0] == 3\"", 7) == "");
  CHECK(said("guard \"L['x'].size()[0] * 9223372036854775807 == 1\"", 7) == "");
}

TEST_CASE("a message stays one line of moderate length, whatever the guard is") {
  std::string guard = "L['x'].size()[0] < 0";
  while (guard.size() < 5000) guard += " or L['x'].size()[0] == 99";
  const std::string message = said("guard \"" + guard + "\"", 7);
  CHECK(message.size() < 300);
  CHECK(message.ends_with("nearest allowed: 99"));
  CHECK(said("guard \"1 <\\x09 0 and L['x'].size()[0] == 1\"", 7).find('\t') == std::string::npos);
}

TEST_CASE("an allowed size is looked for among many guards, and the search ends") {
  std::string guards;
  for (int i = 0; i < 1000; ++i)
    guards +=
        "guard \"(1 + (((-1) + (((-1) + L['x'].size()[0]) // 4)) // 2)) != " + std::to_string(i + 5000) +
        "\"\n";
  const Program program =
      parse_graph(guards + "guard \"L['x'].size()[0] < 0\"\ninputs x: f32[s0]\noutputs x");
  CHECK(error_of(program, {sized({7})}) != "");
}
