// Refuses inputs that the model was not exported for, and says which would do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/input_binding.hpp"

namespace lowtide::graph {

/// A symbol that a size or an integer of the inputs told.
struct BoundSymbol {
  SymbolId symbol = 0;
  GuardPlace place;   // which told it first
  std::string where;  // the same for messages: "input 'x' has shape [3]: size 3 at dimension 0"
};

/// Checks real ranges of the symbols and the guards. `bound` holds what the inputs tell of the symbols, by
/// `order`; inputs and program have the same number of inputs, of fitting kinds and ranks. Throws InputError
/// naming input, dimension, condition and the nearest size that all conditions allow, where one is found. A
/// guard that is not evaluated or not decidable refuses nothing.
void check_limits(const Program& program, const InputDescriptions& inputs, const SymbolValues& bound,
                  const std::vector<BoundSymbol>& order);

/// Why no input may have this size at a place that has a symbol of its own, whatever the other sizes are: the
/// first guard that looks at this symbol alone and does not hold, in words, with the nearest size that all of
/// those allow where one is found. Nothing where they hold.
std::optional<std::string> find_refusal(const Program& program, const GuardPlace& place, std::int64_t size);

}  // namespace lowtide::graph
