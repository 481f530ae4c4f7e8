// Guards: what they say of given sizes, and that no text is too much for them.
#include "graph/guard.hpp"

#include <doctest/doctest.h>

#include <random>

#include "graph/graph_text.hpp"

using namespace lowtide;
using namespace lowtide::graph;

namespace {

const char* const kInputs = R"(
inputs x: f32[s0, s1], y: f32[s2], n: sym_int(s3), "d['b c']": f32[s0], "xs[1][0]": f32[s0], p.u: f32[s0], args_0: f32[s4]
fixed fixed_n = 3
inputs kw: f32[s5]
outputs x
)";

struct Sizes {
  std::optional<std::int64_t> x0 = 12, x1 = 40, y = 5, n = 3;
};

Guard read(const std::string& text) {
  Program program = parse_graph(kInputs);
  program.guards.emplace_back(text);
  resolve_guards(program);
  return program.guards.front();
}

GuardVerdict verdict(const std::string& text, const Sizes& sizes = {}) {
  CAPTURE(text);
  const Guard guard = read(text);
  CHECK(guard.reason() == "");
  std::vector<std::optional<std::int64_t>> values;
  for (const GuardPlace& place : guard.places()) {
    if (place == GuardPlace{0, 0}) values.push_back(sizes.x0);
    if (place == GuardPlace{0, 1}) values.push_back(sizes.x1);
    if (place == GuardPlace{1, 0}) values.push_back(sizes.y);
    if (place == GuardPlace{2, std::nullopt}) values.push_back(sizes.n);
  }
  CHECK(values.size() == guard.places().size());
  return guard.evaluate(values);
}

bool holds(const std::string& text, const Sizes& sizes = {}) {
  const GuardVerdict result = verdict(text, sizes);
  CHECK((result == GuardVerdict::holds || result == GuardVerdict::fails));
  return result == GuardVerdict::holds;
}

/// Texts that torch 2.11 wrote, all true for the default sizes.
const std::vector<std::string> kReal{
    "(L['x'].size()[0] % 3) == 0",
    "L['x'].size()[0]*L['x'].size()[0] > 100",
    "L['n'] >= 0 and L['n'] <= L['x'].size()[0]",
    "L['n'] != (-1)",
    "0 <= L['x'].size()[0] + ((-1)*L['n'])",
    "L['n']*(L['x'].size()[0] // L['n']) >= 2",
    "((L['x'].size()[1]*L['x'].size()[0]) % 2) == 0",
    "min(64*L['y'].size()[0], 192*L['y'].size()[0]) == (64*L['y'].size()[0])",
    "max(L['y'].size()[0], L['x'].size()[0])*max(L['y'].size()[0], L['x'].size()[0]) > 50",
    "(L['x'].size()[0] / 3) > 2.5",
    "(L['x'].size()[0] & 3) == 0",
    "(L['x'].size()[0] | 1) != 3",
    "(L['x'].size()[0] ^ 3) != 2",
    "(1 % (1 + (((-1) + (((-1) + L['x'].size()[1]) // 4)) // 2))) != 0",
    "1 + (((-1) + (((-1) + L['x'].size()[1]) // 4)) // 2) >= 1",
    "max(1, 1 + (((-1) + (((-1) + L['x'].size()[1]) // 4)) // 2)) > 1",
    "L['y'].size()[0] > 2 or L['x'].size()[0] > 3",
    "3*(L['x'].size()[0] if L['x'].size()[0] > 3 else L['y'].size()[0]) > 7",
    "abs(((-1)*L['x'].size()[0]) + 9*L['y'].size()[0]) < 100",
    "round(L['x'].size()[0] / 3) != 2",
    "math.ceil(L['x'].size()[0] / 3) != 2",
    "math.trunc(1.5*torch.sym_float(L['x'].size()[0])) == 18",
    "2*L['x'].size()[0] <= 7 + L['x'].size()[1]",
};

}  // namespace

TEST_CASE("conditions that export writes are understood and hold for the sizes of the export") {
  for (const std::string& text : kReal) {
    CAPTURE(text);
    CHECK(holds(text));
  }
}

TEST_CASE("conditions fail where Python's would") {
  CHECK_FALSE(holds("(L['x'].size()[0] % 3) == 0", {.x0 = 13}));
  CHECK_FALSE(holds("L['n'] >= 0 and L['n'] <= L['x'].size()[0]", {.n = 13}));
  CHECK_FALSE(holds("L['n'] >= 0 and L['n'] <= L['x'].size()[0]", {.n = -1}));
  CHECK_FALSE(holds("L['y'].size()[0] > 2 or L['x'].size()[0] > 3", {.x0 = 3, .y = 2}));
  CHECK_FALSE(holds("(L['x'].size()[0] / 3) > 2.5", {.x0 = 7}));
  CHECK(holds("(L['x'].size()[0] / 3) > 2.5", {.x0 = 8}));
  CHECK_FALSE(holds("(L['x'].size()[0] if L['x'].size()[0] > 3 else L['y'].size()[0]) == 5", {.x0 = 4}));
  CHECK(holds("(L['x'].size()[0] if L['x'].size()[0] > 3 else L['y'].size()[0]) == 5", {.x0 = 3}));
}

TEST_CASE("operators have Python's precedence, direction and rounding") {
  for (const std::string text :
       {"-2 ** 2 == -4",
        "2 ** 3 ** 2 == 512",
        "2 ** -1 == 0.5",
        "-7 // 2 == -4",
        "7 // -2 == -4",
        "-7 % 3 == 2",
        "7 % -3 == -2",
        "-7.5 // 2 == -4.0",
        "-7.5 % 2 == 0.5",
        "10 - 3 - 2 == 5",
        "100 / 10 / 2 == 5",
        "2 + 3 * 4 == 14",
        "1 | 6 ^ 3 & 5 == 7",
        "1 << 2 + 1 == 8",
        "not 1 == 2",
        "not 0 and not False",
        "True or 1 // 0",
        "1 < 2 < 3 <= 3 != 4 > 1",
        "not (1 < 3 < 2)",
        "round(0.5) == 0 and round(1.5) == 2 and round(-2.5) == -2",
        "math.floor(-0.5) == -1 and math.ceil(-0.5) == 0 and math.trunc(-1.5) == -1",
        "int(-1.5) == -1 and float(3) / 2 == 1.5",
        "min(3, 1, 2) == 1 and max(3, 1.5, 4) == 4",
        "math.sqrt(16) == 4 and math.log2(8) == 3",
        "math.inf > 9223372036854775807",
        "9007199254740993 > 9007199254740992.0",
        "Eq(Mod(7, 4), 3) and Ne(1, 2) and FloorDiv(7, 2) == 3 and Max(1, 2) == Min(2, 3)",
        "torch.sym_max(1, 2) == 2 and torch.sym_not(False)",
        "1e-3 < 0.5 and .5 == 0.5 and 2. == 2"}) {
    CAPTURE(text);
    CHECK(holds(text));
  }
}

TEST_CASE("inputs are found by every way in which export names them") {
  const auto place = [](const char* text) {
    const Guard guard = read(std::string(text) + " >= 0");
    CAPTURE(text);
    CHECK(guard.reason() == "");
    REQUIRE(guard.places().size() == 1);
    return guard.places().front();
  };
  CHECK(place("L['x'].size()[1]") == GuardPlace{0, 1});
  CHECK(place("L[\"x\"].shape[0]") == GuardPlace{0, 0});
  CHECK(place("L['d']['b c'].size()[0]") == GuardPlace{3, 0});
  CHECK(place("L['xs'][1][0].size()[0]") == GuardPlace{4, 0});
  CHECK(place("L['p'].u.size()[0]") == GuardPlace{5, 0});
  CHECK(place("L['args'][0].size()[0]") == GuardPlace{6, 0});
  CHECK(place("L['flat_args'][1].size()[0]") == GuardPlace{1, 0});
  CHECK(place("L['flat_args'][2]") == GuardPlace{2, std::nullopt});
  CHECK(place("L['kwargs']['kw'].size()[0]") == GuardPlace{8, 0});
  CHECK(holds("L['fixed_n'] == 3"));
}

TEST_CASE("a guard names each number it looks at once") {
  CHECK(read("L['x'].size()[0]*L['y'].size()[0] == L['x'].size()[0]").places().size() == 2);
}

TEST_CASE("division by zero refuses, but only where Python would come to it") {
  CHECK(verdict("(L['x'].size()[0] % L['n']) == 0", {.n = 0}) == GuardVerdict::divides_by_zero);
  CHECK(verdict("L['x'].size()[0] / L['n'] > 0", {.n = 0}) == GuardVerdict::divides_by_zero);
  CHECK(verdict("L['n'] != 0 and (L['x'].size()[0] % L['n']) == 0", {.n = 0}) == GuardVerdict::fails);
  CHECK(verdict("L['n'] == 0 or (L['x'].size()[0] % L['n']) == 0", {.n = 0}) == GuardVerdict::holds);
  CHECK(verdict("(1 if L['n'] == 0 else 7 // L['n']) == 1", {.n = 0}) == GuardVerdict::holds);
  CHECK(verdict("0 < L['n'] < 1 // L['n']", {.n = 0}) == GuardVerdict::fails);
}

TEST_CASE("what is not known, or leaves 64 bit, decides nothing") {
  CHECK(verdict("L['n'] == 3", {.n = std::nullopt}) == GuardVerdict::undecided);
  CHECK(verdict("L['n'] * L['n'] > 0", {.n = INT64_MAX}) == GuardVerdict::undecided);
  CHECK(verdict("-(L['n'] - 1) > 0", {.n = INT64_MIN}) == GuardVerdict::undecided);
  CHECK(verdict("L['n'] // -1 > 0", {.n = INT64_MIN}) == GuardVerdict::undecided);
  CHECK(verdict("L['n'] % -1 == 0", {.n = INT64_MIN}) == GuardVerdict::holds);
  CHECK(verdict("abs(L['n']) > 0", {.n = INT64_MIN}) == GuardVerdict::undecided);
  CHECK(verdict("L['x'].size()[0] ** L['n'] > 0", {.n = 1000000000}) == GuardVerdict::undecided);
  CHECK(verdict("1 << L['n'] > 0", {.n = 64}) == GuardVerdict::undecided);
  CHECK(verdict("math.floor(1e300) > L['n']") == GuardVerdict::undecided);
}

TEST_CASE("a text that is not understood is kept, says why, and decides nothing") {
  const auto reason = [](const std::string& text) {
    const Guard guard = read(text);
    CAPTURE(text);
    CHECK(guard.text() == text);
    CHECK_FALSE(guard.evaluated());
    CHECK(guard.places().empty());
    CHECK(guard.evaluate({}) == GuardVerdict::undecided);
    return guard.reason();
  };
  CHECK(reason("L['x'].stride()[0] > 3") == "looks at 'stride'");
  CHECK(reason("L['z'].size()[0] > 3") == "there is no input 'z'");
  CHECK(reason("L['x'].size()[2] > 3") == "the input has no dimension 2");
  CHECK(reason("L['x'] > 3") == "the input is no integer");
  CHECK(reason("open('x') == 3") == "calls 'open'");
  CHECK(reason("__import__('os').system('x')") == "calls '__import__'");
  CHECK(reason("max(1) > 3") == "calls 'max' with 1 operands");
  CHECK(reason("L['n'] < 99999999999999999999") == "has an integer of more than 64 bit");
  CHECK(reason("L['n'] >") == "ends too early");
  CHECK(reason("") == "ends too early");
  CHECK(reason("1 == 1 1") == "not understood at character 8");
  CHECK(reason("L['n'] is None") == "not understood at character 8");
  CHECK(reason("0x10 == 16") == "not understood at character 2");
  CHECK(reason(std::string("1 == 1\0 or 1", 12)) == "not understood at character 7");
  CHECK(reason("(lambda: 1)() == 1") == "not understood at character 2");
}

TEST_CASE("hostile texts, however deep or long, are read to an end") {
  const auto repeated = [](const std::string& part, std::size_t bytes) {
    std::string text;
    while (text.size() < bytes) text += part;
    return text;
  };
  for (const std::string part : {"(", "-", "+", "not ", "2**", "max(", "1 if 1 else ", "L['x']", "L['x'][0]",
                                 "-(", "1 if ", "[", "math.floor(", "'", "L['", "a.", "9", "1e", "0.0"}) {
    CAPTURE(part);
    for (const std::size_t bytes : {10'000u, 60'000u, 1'000'000u})
      CHECK_FALSE(read(repeated(part, bytes) + "1").evaluated());
  }
  CHECK(read(repeated("(", 1'000'000)).reason() == "too long");
  CHECK(read(repeated("(", 1000) + "1" + repeated(")", 1000)).reason() == "nested too deeply");
  // Long but flat: read and evaluated without recursion.
  for (const char* part : {"1 + ", "1 and ", "0 or ", "1 - ", "3 // ", "True and not "}) {
    CAPTURE(part);
    const Guard guard = read(repeated(part, 60'000) + "1");
    CHECK(guard.reason() == "");
    CHECK(guard.evaluate({}) != GuardVerdict::undecided);
  }
  CHECK(read(repeated("1 < ", 60'000) + "1").reason() == "too many comparisons in one chain");
}

TEST_CASE("real texts with random changes are read, evaluated and printed without harm") {
  std::mt19937 random(7);
  const std::string letters =
      "()[]'\"<>=!+-*/%&|^.,L0129xn \0\xff\nefi"
      "and or not if else size";
  const auto pick = [&](std::size_t count) { return random() % count; };
  Program program = parse_graph(kInputs);
  std::size_t understood = 0;
  for (int round = 0; round < 200; ++round) {
    program.guards.clear();
    for (const std::string& real : kReal) {
      std::string text = real;
      for (std::size_t changes = 1 + pick(2); changes > 0; --changes) {
        const std::size_t at = pick(text.size());
        const std::string& other = kReal[pick(kReal.size())];
        switch (pick(5)) {
          case 0:
            text[at] = letters[pick(letters.size())];
            break;
          case 1:
            text.erase(at, 1 + pick(6));
            break;
          case 2:
            text.insert(at, 1, letters[pick(letters.size())]);
            break;
          case 3:
            text.insert(at, other.substr(pick(other.size()), 1 + pick(20)));
            break;
          default:
            text = text.substr(0, at) + other.substr(pick(other.size()));
        }
        if (text.empty()) text = "1";
      }
      program.guards.emplace_back(text);
    }
    resolve_guards(program);
    for (const Guard& guard : program.guards) {
      understood += guard.evaluated() ? 1 : 0;
      for (const std::int64_t value : {std::int64_t{0}, std::int64_t{7}, INT64_MAX, INT64_MIN}) {
        const std::vector<std::optional<std::int64_t>> values(guard.places().size(), value);
        guard.evaluate(values);
      }
      guard.in_words("other");
    }
    const Program again = parse_graph(print_graph(program));
    REQUIRE(again.guards.size() == program.guards.size());
    for (std::size_t i = 0; i < again.guards.size(); ++i) {
      CHECK(again.guards[i].text() == program.guards[i].text());
      CHECK(again.guards[i].reason() == program.guards[i].reason());
    }
  }
  CHECK(understood > 100);  // else the changes are too wild to test anything
}
