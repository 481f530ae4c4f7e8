#include "graph/guard_check.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "graph/quote.hpp"
#include "lowtide/error.hpp"

namespace lowtide::graph {
namespace {

/// Smaller minima say that 0 and 1 were not looked at during export; they are accepted.
constexpr std::int64_t kNoMinimum = 2;
/// How far from the given size a better one is looked for, and how many steps of guards that may take.
constexpr std::int64_t kReach = 1024;
constexpr std::size_t kMostSteps = 2'000'000;

std::vector<const GraphInput*> expected_inputs(const Program& program) {
  std::vector<const GraphInput*> expected;
  for (const GraphInput& input : program.graph.inputs) {
    if (input.kind == InputKind::user || input.kind == InputKind::constant) expected.push_back(&input);
  }
  return expected;
}

class Checker {
 public:
  Checker(const Program& program, const InputDescriptions& inputs, const SymbolValues& bound)
      : program_(program), inputs_(inputs), bound_(bound), expected_(expected_inputs(program)) {
    for (const Guard& guard : program.guards) guards_.push_back(&guard);
  }

  void check_ranges(const std::vector<BoundSymbol>& order) const {
    for (const BoundSymbol& entry : order) {
      const std::int64_t value = *bound_[entry.symbol];
      if (in_range(entry.symbol, value)) continue;
      const SymbolRange& range = program_.ranges.at(entry.symbol);
      const bool below = range.min && value < *range.min;
      const std::string limit = std::to_string(below ? *range.min : *range.max);
      throw InputError(entry.where + " is " + (below ? "below the smallest" : "above the largest") +
                       " that the model was exported for, " + limit + nearest_text({entry.place}));
    }
  }

  void check_guards() const {
    if (const Guard* guard = broken_guard())
      throw InputError(condition(*guard) + nearest_text(guard->places(), guard));
  }

  /// Leaves guards out that look at anything but this symbol.
  void keep_guards_of(SymbolId symbol) {
    const auto holds_it = [&](const GuardPlace& place) {
      const SymExpr* expr = expr_at(place);
      return expr != nullptr && expr->symbols() == std::vector{symbol};
    };
    std::erase_if(guards_, [&](const Guard* guard) {
      return guard->places().empty() ||
             !std::all_of(guard->places().begin(), guard->places().end(), holds_it);
    });
  }

  std::optional<std::string> refusal(const GuardPlace& place) const {
    const Guard* guard = broken_guard();
    return guard == nullptr ? std::nullopt : std::optional(condition(*guard) + nearest_text({place}, guard));
  }

 private:
  bool in_range(SymbolId symbol, std::int64_t value) const {
    const auto range = program_.ranges.find(symbol);
    if (range == program_.ranges.end()) return true;
    const auto [min, max] = range->second;
    return !(min && *min > kNoMinimum && value < *min) && !(max && value > *max);
  }

  static std::optional<std::int64_t> number_at(const InputDescriptions& inputs, const GuardPlace& place) {
    const auto& given = inputs[place.input];
    if (!given) return std::nullopt;
    if (!place.dimension) return given->integer;
    if (*place.dimension >= given->sizes.size()) return std::nullopt;
    return given->sizes[*place.dimension];
  }

  static GuardVerdict verdict_of(const Guard& guard, const InputDescriptions& inputs) {
    if (!guard.evaluated()) return GuardVerdict::undecided;
    std::vector<std::optional<std::int64_t>> values;
    values.reserve(guard.places().size());
    for (const GuardPlace& place : guard.places()) values.push_back(number_at(inputs, place));
    return guard.evaluate(values);
  }

  static bool refuses(const Guard& guard, const InputDescriptions& inputs) {
    const GuardVerdict verdict = verdict_of(guard, inputs);
    return verdict == GuardVerdict::fails || verdict == GuardVerdict::divides_by_zero;
  }

  const Guard* broken_guard() const {
    const auto found = std::find_if(guards_.begin(), guards_.end(),
                                    [&](const Guard* guard) { return refuses(*guard, inputs_); });
    return found == guards_.end() ? nullptr : *found;
  }

  // --- words ---

  std::string name_of(const GuardPlace& place) const {
    const auto& names = program_.user_input_names;
    const std::string name = place.input < names.size() ? names[place.input] : std::to_string(place.input);
    return "input " + in_quotes(name) +
           (place.dimension ? ", dimension " + std::to_string(*place.dimension) : "");
  }

  std::string number_text(const GuardPlace& place) const {
    const auto number = number_at(inputs_, place);
    return number ? std::to_string(*number) : "not known";
  }

  /// What a guard that does not hold asks for.
  std::string condition(const Guard& guard) const {
    static constexpr std::size_t kMostNamed = 4;
    const std::vector<GuardPlace>& places = guard.places();
    // In quotes it is one line and cut where it is long; the quotes themselves are for names.
    std::string text = in_quotes(guard.text());
    text = text.substr(1, text.size() - 2);
    if (places.empty())
      return "the model was exported with a condition that never holds (guard " + text + ")";
    const std::string second =
        places.size() > 1 ? name_of(places[1]) + ", which is " + number_text(places[1]) : std::string();
    const auto words = guard.in_words(second);
    std::string message = name_of(places[0]) + " is " + number_text(places[0]);
    if (!words) {
      for (std::size_t i = 1; i < std::min(places.size(), kMostNamed); ++i)
        message += "; " + name_of(places[i]) + " is " + number_text(places[i]);
      if (places.size() > kMostNamed) message += "; ...";
    }
    if (verdict_of(guard, inputs_) == GuardVerdict::divides_by_zero) {
      message += ", where a condition of the export cannot be computed";
    } else if (words) {
      message += ", but the export requires that it " + *words;
    } else {
      message += std::string(", which the export does not allow") + (places.size() > 1 ? " together" : "");
    }
    return message + " (guard " + text + ")";
  }

  // --- the nearest allowed size ---

  /// What changes together with one number of the inputs.
  struct Variation {
    GuardPlace place;
    const SymExpr* expr = nullptr;   // what the number is in terms of the symbols
    std::optional<SymbolId> symbol;  // the only one in it; nothing where only the number itself can change
    std::vector<GuardPlace> moved;   // all known ones that change, the place among them
  };

  const SymExpr* expr_at(const GuardPlace& place) const {
    const GraphInput& input = *expected_[place.input];
    if (input.kind != InputKind::user || input.value == kNoValue) return nullptr;
    const Value& value = program_.graph.values[input.value];
    if (value.kind == ValueKind::sym_int) return place.dimension ? nullptr : &value.expr;
    if (value.kind != ValueKind::tensor || !place.dimension) return nullptr;
    return *place.dimension < value.meta.sizes.size() ? &value.meta.sizes[*place.dimension] : nullptr;
  }

  std::optional<Variation> vary(const GuardPlace& place) const {
    Variation variation{place, expr_at(place), std::nullopt, {place}};
    if (variation.expr == nullptr || variation.expr->is_constant()) return std::nullopt;
    const std::vector<SymbolId> symbols = variation.expr->symbols();
    if (symbols.size() != 1) return variation;
    variation.symbol = symbols.front();
    const auto consider = [&](const GuardPlace& other) {
      const SymExpr* moved = expr_at(other);
      if (moved == nullptr || other == place || !moved->evaluate(bound_)) return;
      const std::vector<SymbolId> used = moved->symbols();
      if (std::find(used.begin(), used.end(), *variation.symbol) != used.end())
        variation.moved.push_back(other);
    };
    for (std::size_t i = 0; i < expected_.size(); ++i) {
      if (!inputs_[i]) continue;
      consider({i, std::nullopt});
      for (std::size_t d = 0; d < inputs_[i]->sizes.size(); ++d) consider({i, d});
    }
    return variation;
  }

  /// The inputs with `number` in the place of the variation; nothing where the symbols do not allow that.
  std::optional<InputDescriptions> varied(const Variation& variation, std::int64_t number) const {
    SymbolValues values = bound_;
    if (variation.symbol) {
      values[*variation.symbol].reset();
      const auto solution = variation.expr->solve(number, values);
      if (!solution || !in_range(*variation.symbol, solution->second)) return std::nullopt;
      values[*variation.symbol] = solution->second;
    } else if (const auto value = variation.expr->evaluate(values); value && *value != number) {
      return std::nullopt;
    }
    InputDescriptions inputs = inputs_;
    for (const GuardPlace& place : variation.moved) {
      const auto moved = variation.symbol ? expr_at(place)->evaluate(values) : std::optional(number);
      if (!moved || (place.dimension && *moved < 0)) return std::nullopt;
      InputDescription& input = *inputs[place.input];
      if (place.dimension) {
        input.sizes[*place.dimension] = *moved;
      } else if (input.integer) {
        input.integer = *moved;
      }
    }
    return inputs;
  }

  /// The guards that a variation has to meet: those it can change, but for those that other numbers break
  /// already.
  std::vector<const Guard*> guards_of(const Variation& variation) const {
    std::vector<const Guard*> guards;
    const auto moves = [&](const GuardPlace& place) {
      return std::find(variation.moved.begin(), variation.moved.end(), place) != variation.moved.end();
    };
    for (const Guard* guard : guards_) {
      const auto& places = guard->places();
      if (!guard->evaluated() || std::none_of(places.begin(), places.end(), moves)) continue;
      if (std::all_of(places.begin(), places.end(), moves) || !refuses(*guard, inputs_))
        guards.push_back(guard);
    }
    return guards;
  }

  std::optional<std::int64_t> nearest(const Variation& variation, const Guard* must) const {
    const std::int64_t given = *number_at(inputs_, variation.place);
    std::vector<const Guard*> guards = guards_of(variation);
    if (must != nullptr && std::find(guards.begin(), guards.end(), must) == guards.end())
      guards.push_back(must);
    std::size_t cost = 4 * (expected_.size() + 1);
    for (const Guard* guard : guards) cost += guard->steps() + 1;
    const auto allowed = [&](std::int64_t number) {
      if (number < 1) return false;
      const auto inputs = varied(variation, number);
      return inputs && std::none_of(guards.begin(), guards.end(),
                                    [&](const Guard* guard) { return refuses(*guard, *inputs); });
    };
    const auto around = [&](std::int64_t center) -> std::optional<std::int64_t> {
      const auto reach = std::min<std::int64_t>(kReach, static_cast<std::int64_t>(kMostSteps / (2 * cost)));
      for (std::int64_t distance = 0; distance <= reach; ++distance) {
        if (center <= INT64_MAX - distance && allowed(center + distance)) return center + distance;
        if (center >= INT64_MIN + distance && allowed(center - distance)) return center - distance;
      }
      return std::nullopt;
    };
    if (const auto found = around(given)) return found;
    if (const auto found = around(clamped(variation, given))) return found;
    return among_integers(guards, given, allowed);
  }

  /// What the range of the symbol makes of a number outside of it.
  std::int64_t clamped(const Variation& variation, std::int64_t number) const {
    if (!variation.symbol || !bound_[*variation.symbol]) return number;
    const auto range = program_.ranges.find(*variation.symbol);
    if (range == program_.ranges.end()) return number;
    SymbolValues values = bound_;
    std::int64_t& value = *values[*variation.symbol];
    if (range->second.max) value = std::min(value, *range->second.max);
    if (range->second.min) value = std::max(value, *range->second.min);
    return variation.expr->evaluate(values).value_or(number);
  }

  /// Far from what is allowed, a bound that a guard names is the best guess.
  static std::optional<std::int64_t> among_integers(const std::vector<const Guard*>& guards,
                                                    std::int64_t given,
                                                    const std::function<bool(std::int64_t)>& allowed) {
    static constexpr std::size_t kMost = 64;
    std::vector<std::int64_t> candidates;
    for (const Guard* guard : guards) {
      for (const std::int64_t integer : guard->integers()) {
        if (candidates.size() >= kMost || integer < 1 || integer == INT64_MAX) continue;
        candidates.insert(candidates.end(), {integer - 1, integer, integer + 1});
      }
    }
    std::sort(candidates.begin(), candidates.end(), [&](std::int64_t a, std::int64_t b) {
      const auto far = [&](std::int64_t n) {  // unsigned: it may be more than an integer holds
        const auto from = static_cast<std::uint64_t>(std::min(n, given));
        return static_cast<std::uint64_t>(std::max(n, given)) - from;
      };
      return far(a) < far(b);
    });
    const auto found = std::find_if(candidates.begin(), candidates.end(), allowed);
    return found == candidates.end() ? std::nullopt : std::optional(*found);
  }

  std::string nearest_text(const std::vector<GuardPlace>& places, const Guard* must = nullptr) const {
    static constexpr std::size_t kMostTried = 4;
    for (std::size_t i = 0; i < std::min(places.size(), kMostTried); ++i) {
      if (!number_at(inputs_, places[i])) continue;
      const auto variation = vary(places[i]);
      const auto number = variation ? nearest(*variation, must) : std::nullopt;
      if (!number) continue;
      return "; nearest allowed: " + std::to_string(*number) +
             (must != nullptr && must->places() != std::vector{places[i]} ? " for " + name_of(places[i])
                                                                          : "");
    }
    return {};
  }

  const Program& program_;
  const InputDescriptions& inputs_;
  const SymbolValues& bound_;
  std::vector<const GraphInput*> expected_;
  std::vector<const Guard*> guards_;
};

}  // namespace

void check_limits(const Program& program, const InputDescriptions& inputs, const SymbolValues& bound,
                  const std::vector<BoundSymbol>& order) {
  const Checker checker(program, inputs, bound);
  checker.check_ranges(order);
  checker.check_guards();
}

std::optional<std::string> find_refusal(const Program& program, const GuardPlace& place, std::int64_t size) {
  const std::vector<const GraphInput*> expected = expected_inputs(program);
  const Graph& graph = program.graph;
  const SymbolId symbol = graph.values[expected.at(place.input)->value]
                              .meta.sizes.at(place.dimension.value())
                              .as_symbol()
                              .value();
  SymbolValues bound(program.symbols.size());
  bound.at(symbol) = size;
  InputDescriptions inputs;
  for (const GraphInput* input : expected) {
    InputDescription& described = inputs.emplace_back(InputDescription{}).value();
    if (input->value == kNoValue) continue;
    const Value& value = graph.values[input->value];
    described.integer = value.expr.evaluate(bound);
    for (const SymExpr& extent : value.meta.sizes)  // no guard that is left looks at the unknown ones
      described.sizes.push_back(extent.evaluate(bound).value_or(0));
  }
  Checker checker(program, inputs, bound);
  checker.keep_guards_of(symbol);
  return checker.refusal(place);
}

}  // namespace lowtide::graph
