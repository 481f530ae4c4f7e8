// Conditions of the export on its inputs: Python text such as
//   (L['x'].size()[0] % 8) == 0
// read once into code for a small stack machine. Nothing of the text is ever executed as Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lowtide::graph {

struct Program;

/// A number of the caller's inputs that a guard looks at.
struct GuardPlace {
  std::size_t input = 0;  // position among the flattened user inputs
  /// Of a tensor; nothing where the input is itself a symbolic integer.
  std::optional<std::size_t> dimension;

  bool operator==(const GuardPlace&) const = default;
};

/// What a guard says of the numbers it looks at. `undecided`: one of them is not known yet, or the arithmetic
/// leaves 64 bit.
enum class GuardVerdict : std::uint8_t { holds, fails, divides_by_zero, undecided };

/// One condition. Immutable, safe to share between threads.
class Guard {
 public:
  /// Not evaluated until resolve_guards has read it.
  explicit Guard(std::string text) : text_(std::move(text)), reason_("not read yet") {}

  const std::string& text() const { return text_; }
  /// Was all of the text understood?
  bool evaluated() const { return reason_.empty(); }
  /// Why it is not evaluated, in a few words; empty where it is.
  const std::string& reason() const { return reason_; }
  /// Each once, in order of first use; none where the guard is not evaluated.
  const std::vector<GuardPlace>& places() const { return places_; }
  /// Values to try when a place has to change: the integers that the text names.
  std::vector<std::int64_t> integers() const;
  /// Steps of an evaluation, the unit of its cost.
  std::size_t steps() const { return code_.size(); }

  /// `values` has one entry per place, nothing where a number is not known. Undecided where the guard is not
  /// evaluated. Never throws for anything that the text or the values hold.
  GuardVerdict evaluate(std::span<const std::optional<std::int64_t>> values) const;

  /// The condition in words, where it is a simple one on the first place: "is divisible by 8", "is at least
  /// 3". `other` names the second place, for comparisons of two.
  std::optional<std::string> in_words(const std::string& other) const;

 private:
  friend class GuardParser;

  enum class Op : std::uint8_t {
    // operands
    integer,
    real,
    boolean,
    place,
    // one operand
    negate,
    invert_truth,
    absolute,
    round_down,
    round_up,
    truncate,
    round_even,
    to_real,
    function,  // n is its place in the table of functions
    // two operands
    add,
    subtract,
    multiply,
    divide,
    floor_divide,
    modulo,
    power,
    bit_and,
    bit_or,
    bit_xor,
    shift_left,
    shift_right,
    logical_and,
    logical_or,
    minimum,
    maximum,
    equal,
    not_equal,
    less,
    less_equal,
    greater,
    greater_equal,
    // three operands: then, condition, else
    choose,
    // many operands, compared pairwise: n holds their number and what joins them
    chain,
  };
  struct Item {  // reverse Polish: operands first
    Op op;
    std::int64_t n = 0;
    double x = 0;
  };
  struct Value;
  struct Arithmetic;

  Value run(std::span<const std::optional<std::int64_t>> values) const;

  std::string text_;
  std::string reason_;
  std::vector<Item> code_;
  std::vector<GuardPlace> places_;
};

/// Reads the texts of the program's guards, which look at its inputs by their names: to be called when both
/// are complete. A text that is not understood, or too long or too deeply nested to be one that export
/// writes, stays and is not evaluated. Never throws for what a text holds; takes time linear in its length.
void resolve_guards(Program& program);

/// How many guards are not evaluated.
std::size_t count_unevaluated(const Program& program);

}  // namespace lowtide::graph
