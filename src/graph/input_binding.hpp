// From the caller's inputs to the sizes of everything: symbols are bound from the inputs, recorded
// expressions are evaluated.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.hpp"

namespace lowtide::graph {

/// What is known about one user input before the run.
struct InputDescription {
  DType dtype = DType::unknown;
  std::vector<std::int64_t> sizes;
  /// Value of a 0-d integer or bool tensor where it is known: it may feed a symbolic int.
  std::optional<std::int64_t> integer;

  bool operator==(const InputDescription&) const = default;
};

/// One entry per user input (constant inputs included, in flattened order); nothing where the caller passes
/// none.
using InputDescriptions = std::vector<std::optional<InputDescription>>;

/// Checks presence, dtype, rank, fixed sizes, real range constraints (a lower bound of 2 means "0 and 1 were
/// not looked at" and is no bound) and the guards, and binds the symbols. Throws InputError naming the input,
/// what was expected, what was given and, for ranges and guards, the nearest size that all of them allow.
SymbolValues bind_inputs(const Program& program, const InputDescriptions& inputs);

/// The inputs the archive was exported with, where recorded hints tell them: for `plan` without --shape.
/// (Sizes of symbols come from Program::hints; a symbol without hint makes it nothing.)
std::optional<InputDescriptions> sample_inputs(const Program& program);

struct ShapeTable {
  /// Per value; nothing for values that are no tensors or whose size cannot be evaluated.
  std::vector<std::optional<ConcreteMeta>> metas;
  /// Per value: is its meta an upper bound instead of the real size?
  std::vector<bool> upper_bound;
  /// False when a tensor's size depends on data and no upper bound is known.
  bool bounded = true;
  /// Are all sizes known before the run? False where some are upper bounds or unknown: they depend on data.
  bool exact = true;
};

/// Evaluates the recorded sizes of every value. Data-dependent symbols (u0) take their upper bound where one
/// is known: the range constraint's maximum, or the number of elements that nonzero, unique or masked_select
/// look at. `symbols` may be shorter than the program's table.
ShapeTable evaluate_shapes(const Program& program, SymbolValues symbols);

}  // namespace lowtide::graph
