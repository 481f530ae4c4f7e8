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
#include "graph/quote.hpp"

namespace lowtide::graph {
namespace {

constexpr std::size_t kLongest = 64 * 1024;
constexpr int kDeepest = 200;
/// Comparisons in one chain, four bits each beside their number.
constexpr std::size_t kLongestChain = 14;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c);
}

/// A text that is not understood; caught where the guard is read.
struct NotUnderstood {
  std::string reason;
};

}  // namespace

/// Recursive descent; each level of nesting is counted, and nothing is read twice.
class GuardParser {
 public:
  GuardParser(Guard& guard, const GuardInputs& inputs) : text_(guard.text_), guard_(guard), inputs_(inputs) {}

  static void read(Guard& guard, const GuardInputs& inputs) {
    guard.code_.clear();
    guard.places_.clear();
    guard.reason_.clear();
    try {
      if (guard.text_.size() > kLongest) throw NotUnderstood{"too long"};
      GuardParser parser(guard, inputs);
      parser.conditional();
      if (parser.peek() != '\0' || parser.pos_ < parser.text_.size()) parser.stop();
    } catch (NotUnderstood& why) {
      guard.reason_ = std::move(why.reason);
      guard.code_.clear();
      guard.places_.clear();
    }
  }

 private:
  using Op = Guard::Op;

  // --- tokens ---

  [[noreturn]] void stop() const {
    throw NotUnderstood{pos_ < text_.size() ? "not understood at character " + std::to_string(pos_ + 1)
                                            : "ends too early"};
  }

  char peek() {
    while (pos_ < text_.size() && (text_[pos_] == ' ' || text_[pos_] == '\t')) ++pos_;
    return pos_ < text_.size() ? text_[pos_] : '\0';
  }
  bool accept(std::string_view token) {
    peek();
    if (text_.substr(pos_, token.size()) != token) return false;
    pos_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) stop();
  }
  bool accept_word(std::string_view word) {
    peek();
    const std::size_t end = pos_ + word.size();
    if (text_.substr(pos_, word.size()) != word || (end < text_.size() && is_word(text_[end]))) return false;
    pos_ = end;
    return true;
  }
  std::string_view word() {
    const std::size_t start = pos_;
    while (pos_ < text_.size() && is_word(text_[pos_])) ++pos_;
    if (pos_ == start) stop();
    return text_.substr(start, pos_ - start);
  }

  void emit(Op op, std::int64_t n = 0, double x = 0) { guard_.code_.push_back({op, n, x}); }

  struct Level {
    explicit Level(GuardParser& owner) : parser(owner) {
      if (++parser.depth_ > kDeepest) throw NotUnderstood{"nested too deeply"};
    }
    ~Level() { --parser.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    GuardParser& parser;
  };

  // --- grammar, loosest first ---

  void conditional() {
    const Level level(*this);
    either();
    if (!accept_word("if")) return;
    either();
    if (!accept_word("else")) stop();
    conditional();
    emit(Op::choose);
  }

  void either() {
    both();
    while (accept_word("or")) {
      both();
      emit(Op::logical_or);
    }
  }

  void both() {
    negation();
    while (accept_word("and")) {
      negation();
      emit(Op::logical_and);
    }
  }

  void negation() {
    if (!accept_word("not")) return comparison();
    const Level level(*this);
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
    if (accept("==")) return Op::equal;
    if (accept("!=")) return Op::not_equal;
    if (accept("<=")) return Op::less_equal;
    if (accept(">=")) return Op::greater_equal;
    if (accept("<")) return Op::less;
    if (accept(">")) return Op::greater;
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
      if (binary.rank >= least && accept(binary.token)) return &binary;
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
    if (accept("-")) {
      const Level level(*this);
      unary();
      return emit(Op::negate);
    }
    if (accept("+")) {
      const Level level(*this);
      return unary();
    }
    atom();
    if (!accept("**")) return;
    const Level level(*this);
    unary();
    emit(Op::power);
  }

  void atom() {
    const char next = peek();
    if (is_digit(next) || next == '.') return number();
    if (accept("(")) {
      conditional();
      return expect(")");
    }
    if (accept_word("True")) return emit(Op::boolean, 1);
    if (accept_word("False")) return emit(Op::boolean, 0);
    const std::size_t start = pos_;
    std::string name(word());
    if (name == "L") return place();
    while (accept(".")) name.append(".").append(word());
    if (name == "math.inf") return emit(Op::real, 0, std::numeric_limits<double>::infinity());
    if (!accept("(")) {
      pos_ = start;
      stop();
    }
    call(name);
  }

  void number() {
    const char* const begin = text_.data() + pos_;
    const char* const end = text_.data() + text_.size();
    std::int64_t integer = 0;
    const auto whole = std::from_chars(begin, end, integer);
    const bool fraction =
        whole.ptr == begin || (whole.ptr != end && (*whole.ptr == '.' || *whole.ptr == 'e'));
    if (!fraction) {
      if (whole.ec != std::errc()) throw NotUnderstood{"has an integer of more than 64 bit"};
      finish_number(whole.ptr);
      return emit(Op::integer, integer);
    }
    double real = 0;
    const auto read = std::from_chars(begin, end, real);
    if (read.ec != std::errc()) stop();
    finish_number(read.ptr);
    emit(Op::real, 0, real);
  }

  void finish_number(const char* end) {
    pos_ = static_cast<std::size_t>(end - text_.data());
    if (pos_ < text_.size() && is_word(text_[pos_])) stop();  // 0x10, 1_000
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
      expect(")");
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
    } while (accept(","));
    expect(")");
    if (count < callable.least || count > callable.most)
      throw NotUnderstood{"calls " + in_quotes(callable.name) + " with " + std::to_string(count) +
                          " operands"};
    if (callable.most == 1) emit(callable.op);
  }

  // --- L['name'][...].field.size()[0] ---

  void place() {
    expect("[");
    const std::string base = key();
    std::vector<std::string> path;
    while (true) {
      if (accept("[")) {
        const char next = peek();
        path.push_back(next == '\'' || next == '"' ? "['" + key_text() + "']" : "[" + index() + "]");
        expect("]");
        continue;
      }
      const std::size_t before = pos_;
      if (!accept(".")) return integer_input(base, path);
      const std::string_view name = word();
      const bool called = accept("(");
      if (name == "size" && called) {
        expect(")");
        return dimension(base, path);
      }
      if (called || name == "shape") {
        if (name == "shape" && !called) return dimension(base, path);
        pos_ = before;
        throw NotUnderstood{"looks at " + in_quotes(name)};
      }
      path.push_back("." + std::string(name));
    }
  }

  std::string key() {
    std::string text = key_text();
    expect("]");
    return text;
  }
  std::string key_text() {
    const char mark = peek();
    if (mark != '\'' && mark != '"') stop();
    auto text = unescaped(text_, pos_);
    if (!text) stop();
    return std::move(*text);
  }
  std::string index() {
    const bool negative = accept("-");
    peek();
    const std::size_t start = pos_;
    while (pos_ < text_.size() && is_digit(text_[pos_])) ++pos_;
    if (start == pos_) stop();
    return (negative ? "-" : "") + std::string(text_.substr(start, pos_ - start));
  }

  std::size_t input_of(const std::string& base, const std::vector<std::string>& path) const {
    if (const auto found = inputs_.find(base, path)) return *found;
    std::string name = base;
    for (const std::string& part : path) name += part;
    throw NotUnderstood{"there is no input " + in_quotes(name)};
  }

  void dimension(const std::string& base, const std::vector<std::string>& path) {
    const std::size_t position = input_of(base, path);
    expect("[");
    const std::string digits = index();
    expect("]");
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

  std::string_view text_;
  Guard& guard_;
  const GuardInputs& inputs_;
  std::size_t pos_ = 0;
  int depth_ = 0;
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
