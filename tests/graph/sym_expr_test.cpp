#include "graph/sym_expr.hpp"

#include <doctest/doctest.h>

#include "lowtide/error.hpp"

using namespace lowtide;
using namespace lowtide::graph;

namespace {

/// Expressions over a, b and c.
struct Fixture {
  SymbolTable symbols;
  SymbolId a = symbols.intern("a"), b = symbols.intern("b"), c = symbols.intern("c");

  SymExpr parse(std::string_view text) { return SymExpr::parse(text, symbols); }
  SymExpr infix(std::string_view text) { return SymExpr::parse_infix(text, symbols); }
  std::string text(const SymExpr& expr) const { return expr.to_string(symbols); }
  std::optional<std::int64_t> value(std::string_view expr, std::optional<std::int64_t> a_is = {},
                                    std::optional<std::int64_t> b_is = {}) {
    return parse(expr).evaluate({a_is, b_is, std::nullopt});
  }
};

constexpr const char* kA = "Symbol('a', positive=True, integer=True)";

std::string nested(int depth) {
  std::string text = kA;
  for (int i = 0; i < depth; ++i) text = "Max(Integer(1), " + text + ")";
  return text;
}

}  // namespace

TEST_CASE_FIXTURE(Fixture, "the words that torch.export writes are evaluated") {
  CHECK(value("Integer(7)") == 7);
  CHECK(value("Integer(-7)") == -7);
  CHECK(value(kA, 5) == 5);
  CHECK(value("Add(Symbol('a', integer=True), Integer(-1), Symbol('b'))", 5, 10) == 14);
  CHECK(value("Mul(Integer(3), Symbol('a'), Symbol('b'))", 5, 2) == 30);
  CHECK(value("Pow(Symbol('a'), Integer(3))", 5) == 125);
  CHECK(value("Max(Integer(1), Symbol('a'))", -4) == 1);
  CHECK(value("Min(Symbol('b'), Symbol('a'))", 4, 9) == 4);
  CHECK(value("Mod(Symbol('a'), Integer(4))", 11) == 3);
  CHECK(value("PythonMod(Symbol('a'), Integer(4))", -1) == 3);
  CHECK(value("CleanDiv(Symbol('a'), Integer(4))", 12) == 3);
}

TEST_CASE_FIXTURE(Fixture, "division rounds down, also for negative numbers") {
  CHECK(value("FloorDiv(Symbol('a'), Integer(4))", 11) == 2);
  CHECK(value("FloorDiv(Symbol('a'), Integer(4))", -1) == -1);
  CHECK(value("FloorDiv(Symbol('a'), Integer(-4))", 1) == -1);
  CHECK(value("CeilToInt(IntTrueDiv(Symbol('a'), Integer(4)))", 9) == 3);
  CHECK(value("CeilToInt(IntTrueDiv(Symbol('a'), Integer(4)))", 8) == 2);
}

TEST_CASE_FIXTURE(Fixture,
                  "what cannot be known is nothing: symbols, divisions by zero, overflow, fractions") {
  CHECK_FALSE(value(kA).has_value());
  CHECK_FALSE(value("Add(Symbol('a'), Symbol('b'))", 1).has_value());
  CHECK_FALSE(value("FloorDiv(Integer(1), Symbol('a'))", 0).has_value());
  CHECK_FALSE(value("Mod(Integer(1), Symbol('a'))", 0).has_value());
  CHECK_FALSE(value("FloorDiv(Symbol('a'), Integer(-1))", INT64_MIN).has_value());
  CHECK_FALSE(value("Mul(Symbol('a'), Symbol('a'))", INT64_MAX).has_value());
  CHECK_FALSE(value("Add(Symbol('a'), Integer(1))", INT64_MAX).has_value());
  CHECK_FALSE(value("Pow(Symbol('a'), Integer(64))", 2).has_value());
  CHECK_FALSE(value("Pow(Integer(2), Symbol('a'))", -1).has_value());
  CHECK_FALSE(value("Pow(Integer(10), Integer(400))").has_value());
  CHECK_FALSE(value("Mul(Integer(9223372036854775807), Integer(2))").has_value());
  CHECK_FALSE(value("Integer(9223372036854775808)").has_value());
}

TEST_CASE_FIXTURE(Fixture, "powers of 1, 0 and -1 do not need as many steps as the exponent says") {
  CHECK(value("Pow(Symbol('a'), Integer(9223372036854775807))", 1) == 1);
  CHECK(value("Pow(Symbol('a'), Integer(9223372036854775807))", -1) == -1);
  CHECK(value("Pow(Symbol('a'), Integer(9223372036854775807))", 0) == 0);
}

TEST_CASE_FIXTURE(Fixture, "unknown words parse to an expression that is never known") {
  for (const char* text : {"Piecewise((Symbol('a'), True), (Integer(1), False))", "TruncToInt(Symbol('a'))",
                           "oo", "Float('1.5')", "GreaterThan(Symbol('a'), Integer(0))",
                           "Add(Symbol('a'), Foo())", "1.5", "CeilToInt(Symbol('a'))"}) {
    CAPTURE(text);
    CHECK_FALSE(value(text, 1, 1).has_value());
    CHECK_FALSE(parse(text).is_constant());
  }
}

TEST_CASE_FIXTURE(Fixture, "malformed texts are errors in one line") {
  for (const char* text : {"", "Integer(", "Integer()", "Integer(x)", "Symbol(a)", "Symbol('a", "Add()",
                           "Mod(Integer(1))", "Add(Integer(1),)", "Integer(1) Integer(2)", "Integer(1))",
                           "Add(Integer(1) Integer(2))", "-", "(((", "\n"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse(text), ArchiveError);
  }
  try {
    parse("Add(Integer(1)\n, !");
    FAIL("no error");
  } catch (const ArchiveError& error) {
    CHECK(std::string(error.what()) ==
          "size expression 'Add(Integer(1)\\x0a, !' is malformed at character 15");
  }
}

TEST_CASE_FIXTURE(Fixture, "nesting is limited to 200 levels, which 150 do not reach") {
  CHECK(value(nested(150), 3) == 3);
  CHECK_THROWS_AS(parse(nested(250)), ArchiveError);
  CHECK_THROWS_AS(parse(std::string(100000, '(')), ArchiveError);
  CHECK_THROWS_AS(infix(std::string(100000, '(')), ArchiveError);
}

TEST_CASE_FIXTURE(Fixture, "constants and bare symbols are recognised") {
  CHECK(parse("Add(Integer(2), Integer(3))").is_constant());
  CHECK(parse("Add(Integer(2), Integer(3))").constant() == 5);
  CHECK(parse(kA).as_symbol() == a);
  CHECK(parse("Mul(Integer(1), Symbol('a'))").as_symbol() == a);
  CHECK_FALSE(parse("Mul(Integer(2), Symbol('a'))").as_symbol().has_value());
  CHECK_FALSE(SymExpr(4).as_symbol().has_value());
  CHECK(parse("Add(Symbol('b'), Symbol('a'), Mul(Symbol('b'), Symbol('c')))").symbols() ==
        std::vector<SymbolId>{b, a, c});
}

TEST_CASE_FIXTURE(Fixture, "linear equations are solved for the one unknown symbol") {
  const SymbolValues b_is_3{std::nullopt, 3, std::nullopt};
  const auto solve = [&](std::string_view text, std::int64_t value) {
    return infix(text).solve(value, b_is_3);
  };
  CHECK(solve("2*a + 1", 11) == std::pair(a, std::int64_t{5}));
  CHECK(solve("a*b - 6", 9) == std::pair(a, std::int64_t{5}));
  CHECK(solve("b - a", 1) == std::pair(a, std::int64_t{2}));
  CHECK_FALSE(solve("2*a + 1", 10).has_value());       // no integer
  CHECK_FALSE(solve("a*a", 9).has_value());            // not linear
  CHECK_FALSE(solve("a//2", 4).has_value());           // many solutions
  CHECK_FALSE(solve("a + c", 4).has_value());          // two unknowns
  CHECK_FALSE(solve("b + 1", 4).has_value());          // none
  CHECK_FALSE(solve("a - a", 0).has_value());          // drops out
  CHECK_FALSE(solve("a + 1", INT64_MIN).has_value());  // overflow
  CHECK_FALSE(solve("max(a, 1)", 4).has_value());
}

TEST_CASE_FIXTURE(Fixture, "upper bounds hold for every value of the symbols in their ranges") {
  const SymbolValues low{2, -3, std::nullopt}, high{6, 4, std::nullopt};
  for (const char* text : {"a + b", "a - b", "a*b", "-2*a + b*b", "a//2 - b", "b//a", "b % a", "a % 4",
                           "max(a, b) + min(a, b)", "a**2 - b", "2**a", "(a - b)*(a + b)", "10 - a"}) {
    CAPTURE(text);
    const SymExpr expr = infix(text);
    const auto bound = expr.upper_bound(low, high);
    REQUIRE(bound.has_value());
    for (std::int64_t x = 2; x <= 6; ++x) {
      for (std::int64_t y = -3; y <= 4; ++y) CHECK(expr.evaluate({x, y, std::nullopt}).value() <= *bound);
    }
  }
  CHECK(infix("2*a + 1").upper_bound(low, high) == 13);
  CHECK(infix("10 - a").upper_bound(low, high) == 8);
  CHECK_FALSE(infix("a + c").upper_bound(low, high).has_value());
  CHECK_FALSE(infix("a//b").upper_bound(low, high).has_value());  // b may be 0
}

TEST_CASE_FIXTURE(Fixture, "expressions are shown as people write them") {
  CHECK(text(parse("Add(Mul(Integer(2), Symbol('a')), Integer(1))")) == "2*a + 1");
  CHECK(text(parse("Add(FloorDiv(Add(Symbol('a'), Integer(-1)), Integer(4)), Integer(1))")) ==
        "(a - 1)//4 + 1");
  CHECK(text(parse("Mul(Integer(8), Pow(Max(Integer(1), Symbol('a')), Integer(2)))")) == "8*(max(1, a)**2)");
  CHECK(text(parse("Add(Symbol('a'), Mul(Integer(-1), Symbol('b')))")) == "a - b");
  CHECK(text(parse("Mul(Integer(-3), Symbol('b'))")) == "-3*b");
  CHECK(text(parse("Foo(Symbol('b'))")) == "?");
  CHECK(text(SymExpr(-5)) == "-5");
}

TEST_CASE_FIXTURE(Fixture, "shown expressions can be read again, to the same text and value") {
  for (const char* source :
       {"Add(Symbol('a'), Mul(Integer(-1), Symbol('b')))",
        "Mul(Add(Symbol('a'), Integer(-1)), Add(Symbol('b'), Integer(2)))",
        "Mul(Integer(-1), Add(Symbol('a'), Symbol('b')))", "Pow(Integer(-2), Symbol('a'))",
        "FloorDiv(Mul(Integer(2), Symbol('a')), Symbol('b'))",
        "Mul(Integer(2), FloorDiv(Symbol('a'), Symbol('b')))",
        "Mod(Add(Symbol('a'), Symbol('b')), Integer(3))",
        "Add(Symbol('a'), Mul(Integer(-1), FloorDiv(Integer(7), Symbol('b'))))",
        "Mul(Integer(-9223372036854775808), Symbol('a'))",
        "Max(Add(Symbol('a'), Integer(-5)), Mul(Integer(-1), Symbol('b')))",
        "Pow(Pow(Symbol('a'), Integer(2)), Integer(2))",
        "Mul(Mul(Integer(2), Symbol('a')), Mul(Integer(3), Symbol('b')))",
        "Add(Add(Symbol('a'), Integer(1)), Add(Symbol('b'), Integer(2)))",
        "CeilToInt(IntTrueDiv(Symbol('a'), Integer(4)))", "Foo(1)", "Symbol('odd `name\\n')"}) {
    CAPTURE(source);
    const SymExpr first = parse(source);
    const SymExpr second = infix(text(first));
    CHECK(text(second) == text(first));
    CHECK(second.evaluate({1, 2, std::nullopt}) == first.evaluate({1, 2, std::nullopt}));
  }
}

TEST_CASE_FIXTURE(Fixture, "malformed infix texts are errors") {
  for (const char* source : {"", "a +", "* a", "(a", "max(a", "max()", "a b", "`a", "a $ b", "2a"}) {
    CAPTURE(source);
    CHECK_THROWS_AS(infix(source), ArchiveError);
  }
}
