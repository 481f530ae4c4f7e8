// Reading guards: the part of Python's expressions that torch.export's printer can write.
#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <string_view>
#include <unordered_map>

#include "graph/graph.hpp"
#include "graph/guard.hpp"
#include "graph/guard_functions.hpp"
#include "graph/guard_inputs.hpp"
#include "graph/guard_scanner.hpp"
#include "graph/quote.hpp"

namespace lowtide::graph {
namespace {

constexpr std::size_t kLongest = 64 * 1024;
/// Comparisons in one chain, four bits each beside their number.
constexpr std::size_t kLongestChain = 14;

}  // namespace

/// Recursive descent; each level of nesting is counted, and nothing is read twice.
class GuardParser {
 public:
  GuardParser(Guard& guard, const GuardInputs& inputs) : scan_(guard.text_), guard_(guard), inputs_(inputs) {}

  static void read(Guard& guard, const GuardInputs& inputs) {
    guard.code_.clear();
    guard.places_.clear();
    guard.reason_.clear();
    try {
      if (guard.text_.size() > kLongest) throw NotUnderstood{"too long"};
      GuardParser parser(guard, inputs);
      parser.conditional();
      parser.scan_.expect_end();
    } catch (NotUnderstood& why) {
      guard.reason_ = std::move(why.reason);
      guard.code_.clear();
      guard.places_.clear();
    }
  }

 private:
  using Op = Guard::Op;

  void emit(Op op, std::int64_t n = 0, double x = 0) { guard_.code_.push_back({op, n, x}); }

  // --- grammar, loosest first ---

  void conditional() {
    const GuardScanner::Level level(scan_);
    either();
    if (!scan_.accept_word("if")) return;
    either();
    if (!scan_.accept_word("else")) scan_.stop();
    conditional();
    emit(Op::choose);
  }

  void either() {
    both();
    while (scan_.accept_word("or")) {
      both();
      emit(Op::logical_or);
    }
  }

  void both() {
    negation();
    while (scan_.accept_word("and")) {
      negation();
      emit(Op::logical_and);
    }
  }

  void negation() {
    if (!scan_.accept_word("not")) return comparison();
    const GuardScanner::Level level(scan_);
    negation();
    emit(Op::invert_truth);
  }

  void comparison() {
    binary(0);
    std::vector<Op> joins;
    while (const auto join = comparator()) {
      binary(0);
      joins.push_back(*join);
    }
    if (joins.empty()) return;
    if (joins.size() == 1) return emit(joins.front());
    if (joins.size() > kLongestChain) throw NotUnderstood{"too many comparisons in one chain"};
    std::int64_t packed = 0;
    for (std::size_t i = joins.size(); i-- > 0;)
      packed = packed * 16 + (static_cast<std::int64_t>(joins[i]) - static_cast<std::int64_t>(Op::equal));
    emit(Op::chain, packed * 16 + static_cast<std::int64_t>(joins.size()));
  }

  std::optional<Op> comparator() {
    if (scan_.accept("==")) return Op::equal;
    if (scan_.accept("!=")) return Op::not_equal;
    if (scan_.accept("<=")) return Op::less_equal;
    if (scan_.accept(">=")) return Op::greater_equal;
    if (scan_.accept("<")) return Op::less;
    if (scan_.accept(">")) return Op::greater;
    return std::nullopt;
  }

  struct Binary {
    std::string_view token;
    Op op;
    int rank;
  };
  static constexpr int kUnary = 6;
  static constexpr std::array<Binary, 11> kBinaries{{{"|", Op::bit_or, 0},
                                                     {"^", Op::bit_xor, 1},
                                                     {"&", Op::bit_and, 2},
                                                     {"<<", Op::shift_left, 3},
                                                     {">>", Op::shift_right, 3},
                                                     {"+", Op::add, 4},
                                                     {"-", Op::subtract, 4},
                                                     {"//", Op::floor_divide, 5},
                                                     {"/", Op::divide, 5},
                                                     {"%", Op::modulo, 5},
                                                     {"*", Op::multiply, 5}}};

  const Binary* operator_of(int least) {
    for (const Binary& binary : kBinaries) {
      if (binary.rank >= least && scan_.accept(binary.token)) return &binary;
    }
    return nullptr;
  }

  /// Operators of at least this rank; all are read from left to right.
  void binary(int rank) {
    if (rank == kUnary) return unary();
    unary();
    while (const Binary* next = operator_of(rank)) {
      binary(next->rank + 1);
      emit(next->op);
    }
  }

  void unary() {
    if (scan_.accept("-")) {
      const GuardScanner::Level level(scan_);
      unary();
      return emit(Op::negate);
    }
    if (scan_.accept("+")) {
      const GuardScanner::Level level(scan_);
      return unary();
    }
    atom();
    if (!scan_.accept("**")) return;
    const GuardScanner::Level level(scan_);
    unary();
    emit(Op::power);
  }

  void atom() {
    const char next = scan_.peek();
    if (GuardScanner::is_digit(next) || next == '.') return number();
    if (scan_.accept("(")) {
      conditional();
      return scan_.expect(")");
    }
    if (scan_.accept_word("True")) return emit(Op::boolean, 1);
    if (scan_.accept_word("False")) return emit(Op::boolean, 0);
    const std::size_t start = scan_.position();
    std::string name(scan_.word());
    if (name == "L") return place();
    while (scan_.accept(".")) name.append(".").append(scan_.word());
    if (name == "math.inf") return emit(Op::real, 0, std::numeric_limits<double>::infinity());
    if (!scan_.accept("(")) scan_.stop_at(start);
    call(name);
  }

  void number() {
    const auto number = scan_.number();
    if (const auto* integer = std::get_if<std::int64_t>(&number)) return emit(Op::integer, *integer);
    emit(Op::real, 0, std::get<double>(number));
  }

  struct Callable {
    std::string_view name;
    Op op;
    std::size_t least, most;
  };
  static constexpr std::size_t kMany = SIZE_MAX;
  static constexpr std::array<Callable, 33> kCallables{{{"abs", Op::absolute, 1, 1},
                                                        {"Abs", Op::absolute, 1, 1},
                                                        {"math.floor", Op::round_down, 1, 1},
                                                        {"math.ceil", Op::round_up, 1, 1},
                                                        {"math.trunc", Op::truncate, 1, 1},
                                                        {"int", Op::truncate, 1, 1},
                                                        {"torch.sym_int", Op::truncate, 1, 1},
                                                        {"round", Op::round_even, 1, 1},
                                                        {"float", Op::to_real, 1, 1},
                                                        {"torch.sym_float", Op::to_real, 1, 1},
                                                        {"Not", Op::invert_truth, 1, 1},
                                                        {"torch.sym_not", Op::invert_truth, 1, 1},
                                                        {"min", Op::minimum, 2, kMany},
                                                        {"Min", Op::minimum, 2, kMany},
                                                        {"torch.sym_min", Op::minimum, 2, 2},
                                                        {"max", Op::maximum, 2, kMany},
                                                        {"Max", Op::maximum, 2, kMany},
                                                        {"torch.sym_max", Op::maximum, 2, 2},
                                                        {"Mod", Op::modulo, 2, 2},
                                                        {"PythonMod", Op::modulo, 2, 2},
                                                        {"FloorDiv", Op::floor_divide, 2, 2},
                                                        {"CleanDiv", Op::floor_divide, 2, 2},
                                                        {"math.pow", Op::power, 2, 2},
                                                        {"And", Op::logical_and, 2, kMany},
                                                        {"Or", Op::logical_or, 2, kMany},
                                                        {"Eq", Op::equal, 2, 2},
                                                        {"Ne", Op::not_equal, 2, 2},
                                                        {"Lt", Op::less, 2, 2},
                                                        {"Le", Op::less_equal, 2, 2},
                                                        {"Gt", Op::greater, 2, 2},
                                                        {"Ge", Op::greater_equal, 2, 2},
                                                        {"Add", Op::add, 2, kMany},
                                                        {"Mul", Op::multiply, 2, kMany}}};

  /// The opening parenthesis is taken.
  void call(const std::string& name) {
    for (std::size_t i = 0; i < kGuardFunctions.size(); ++i) {
      if (name != kGuardFunctions[i].name) continue;
      conditional();
      scan_.expect(")");
      return emit(Op::function, static_cast<std::int64_t>(i));
    }
    for (const Callable& callable : kCallables) {
      if (name == callable.name) return operands(callable);
    }
    throw NotUnderstood{"calls " + in_quotes(name)};
  }

  void operands(const Callable& callable) {
    std::size_t count = 0;
    do {
      if (callable.name == "math.pow") {
        conditional();
        emit(Op::to_real);
      } else {
        conditional();
      }
      if (++count > 1) emit(callable.op);
    } while (scan_.accept(","));
    scan_.expect(")");
    if (count < callable.least || count > callable.most)
      throw NotUnderstood{"calls " + in_quotes(callable.name) + " with " + std::to_string(count) +
                          " operands"};
    if (callable.most == 1) emit(callable.op);
  }

  // --- L['name'][...].field.size()[0] ---

  void place() {
    scan_.expect("[");
    const std::string base = scan_.quoted();
    scan_.expect("]");
    std::vector<std::string> path;
    while (true) {
      if (scan_.accept("[")) {
        const char next = scan_.peek();
        path.push_back(next == '\'' || next == '"' ? "['" + scan_.quoted() + "']"
                                                   : "[" + scan_.index() + "]");
        scan_.expect("]");
        continue;
      }
      if (!scan_.accept(".")) return integer_input(base, path);
      const std::string_view name = scan_.word();
      const bool called = scan_.accept("(");
      if (name == "size" && called) {
        scan_.expect(")");
        return dimension(base, path);
      }
      if (called || name == "shape") {
        if (name == "shape" && !called) return dimension(base, path);
        throw NotUnderstood{"looks at " + in_quotes(name)};
      }
      path.push_back("." + std::string(name));
    }
  }

  std::size_t input_of(const std::string& base, const std::vector<std::string>& path) const {
    if (const auto found = inputs_.find(base, path)) return *found;
    std::string name = base;
    for (const std::string& part : path) name += part;
    throw NotUnderstood{"there is no input " + in_quotes(name)};
  }

  void dimension(const std::string& base, const std::vector<std::string>& path) {
    const std::size_t position = input_of(base, path);
    scan_.expect("[");
    const std::string digits = scan_.index();
    scan_.expect("]");
    std::size_t number = SIZE_MAX;
    std::from_chars(digits.data(), digits.data() + digits.size(), number);
    const Value* value = inputs_.value(position);
    if (value == nullptr || value->kind != ValueKind::tensor || number >= value->meta.sizes.size())
      throw NotUnderstood{"the input has no dimension " + digits};
    look_at({position, number});
  }

  void integer_input(const std::string& base, const std::vector<std::string>& path) {
    const std::size_t position = input_of(base, path);
    const GraphInput& input = inputs_.input(position);
    if (input.kind == InputKind::constant) {
      if (const auto* integer = std::get_if<std::int64_t>(&input.constant))
        return emit(Op::integer, *integer);
      if (const auto* flag = std::get_if<bool>(&input.constant)) return emit(Op::boolean, *flag ? 1 : 0);
      if (const auto* real = std::get_if<double>(&input.constant)) return emit(Op::real, 0, *real);
    } else if (const Value* value = inputs_.value(position);
               value != nullptr && value->kind == ValueKind::sym_int) {
      return look_at({position, std::nullopt});
    }
    throw NotUnderstood{"the input is no integer"};
  }

  void look_at(GuardPlace place) {
    const auto seen = seen_.find(key_of(place));
    if (seen != seen_.end()) return emit(Op::place, seen->second);
    const auto index = static_cast<std::int64_t>(guard_.places_.size());
    guard_.places_.push_back(place);
    seen_.emplace(key_of(place), index);
    emit(Op::place, index);
  }
  static std::uint64_t key_of(GuardPlace place) {
    return (static_cast<std::uint64_t>(place.input) << 16) + (place.dimension ? *place.dimension + 1 : 0);
  }

  GuardScanner scan_;
  Guard& guard_;
  const GuardInputs& inputs_;
  std::unordered_map<std::uint64_t, std::int64_t> seen_;
};

void resolve_guards(Program& program) {
  if (program.guards.empty()) return;
  const GuardInputs inputs(program);
  for (Guard& guard : program.guards) GuardParser::read(guard, inputs);
}

std::size_t count_unevaluated(const Program& program) {
  return static_cast<std::size_t>(std::count_if(program.guards.begin(), program.guards.end(),
                                                [](const Guard& guard) { return !guard.evaluated(); }));
}

}  // namespace lowtide::graph
