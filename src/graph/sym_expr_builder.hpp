// Puts size expressions together; for the readers of their texts.
#pragma once

#include <vector>

#include "graph/sym_expr.hpp"

namespace lowtide::graph {

/// Keeps expressions in canonical form, so that equal texts mean equal expressions: sums and products are
/// flat, their constants are combined into one that comes last, and whatever contains an unknown part is one
/// unknown item.
class SymExprBuilder {
 public:
  using Op = SymExpr::Op;

  static SymExpr unknown();
  /// `operands` is not empty; two for pow, floor_div and mod.
  static SymExpr make(Op op, const std::vector<SymExpr>& operands);
  static SymExpr negate(const SymExpr& expr) { return make(Op::mul, {SymExpr(-1), expr}); }

 private:
  using Item = SymExpr::Item;

  static bool is_unknown(const SymExpr& expr);
  static void append(std::vector<Item>& code, const SymExpr& expr);
  static SymExpr make_flat(Op op, const std::vector<SymExpr>& operands);
};

}  // namespace lowtide::graph
