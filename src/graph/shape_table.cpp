#include <algorithm>
#include <array>
#include <utility>

#include "base/checked_math.hpp"
#include "graph/input_binding.hpp"

namespace lowtide::graph {
namespace {

/// Recorded maxima from here on stand for "no limit".
constexpr std::int64_t kNoMaximum = std::int64_t{1} << 40;

/// Minima of 1 and 2 say that smaller sizes were not looked at during export, not that they cannot occur.
constexpr std::int64_t kNoMinimum = 2;

/// Operators of which the result holds at most as many entries as the first argument has elements.
constexpr std::array<std::string_view, 10> kSelections{
    "aten::nonzero",           "aten::nonzero_numpy", "aten::masked_select",
    "aten::argwhere",          "aten::unique_dim",    "aten::_unique",
    "aten::_unique2",          "aten::unique",        "aten::unique_dim_consecutive",
    "aten::unique_consecutive"};

std::optional<std::int64_t> element_count(const ConcreteMeta& meta) {
  std::optional<std::int64_t> count = 1;
  for (const std::int64_t size : meta.sizes) {
    if (size == 0) return 0;
    if (count) count = checked_mul(*count, size);
  }
  return count;
}

/// Widens `shape` to hold `other` as well, dimensions aligned at the right.
void broadcast(std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& other) {
  if (shape.size() < other.size()) shape.insert(shape.begin(), other.size() - shape.size(), 1);
  for (std::size_t i = 0; i < other.size(); ++i) {
    std::int64_t& size = shape[shape.size() - 1 - i];
    const std::int64_t wanted = other[other.size() - 1 - i];
    size = size == 1 ? wanted : wanted == 1 ? size : std::max(size, wanted);
  }
}

class ShapeEvaluator {
 public:
  ShapeEvaluator(const Program& program, SymbolValues symbols)
      : program_(program),
        symbols_(std::move(symbols)),
        low_(program.symbols.size()),
        high_(program.symbols.size()) {
    symbols_.resize(program.symbols.size());
    for (SymbolId id = 0; id < symbols_.size(); ++id) set_bounds(id);
  }

  ShapeTable run() {
    const Graph& graph = program_.graph;
    table_.metas.resize(graph.values.size());
    table_.upper_bound.resize(graph.values.size());
    for (const GraphInput& input : graph.inputs) {
      if (input.value != kNoValue) visit(input.value);
    }
    for (const Node& node : graph.nodes) {
      bound_selection(node);
      for (const ValueId value : node.produced()) visit(value);
    }
    return std::move(table_);
  }

 private:
  void set_bounds(SymbolId id) {
    if (symbols_[id]) {
      low_[id] = high_[id] = symbols_[id];
      return;
    }
    low_[id] = 0;
    const auto range = program_.ranges.find(id);
    if (range == program_.ranges.end()) return;
    const auto [min, max] = range->second;
    if (min && (*min < 0 || *min > kNoMinimum)) low_[id] = *min;
    if (max && *max < kNoMaximum) high_[id] = *max;
  }

  /// nonzero and its like: the symbol that counts what was found is at most the number of elements looked at.
  void bound_selection(const Node& node) {
    const std::string name = node.op_name();
    if (std::find(kSelections.begin(), kSelections.end(), name) == kSelections.end()) return;
    ConcreteMeta searched;  // masked_select looks at two tensors, broadcast to one shape
    for (const ValueId source : node.read_values()) {
      const auto& meta = table_.metas.at(source);
      if (!meta) return;
      broadcast(searched.sizes, meta->sizes);
    }
    const std::optional<std::int64_t> most = element_count(searched);
    if (!most) return;
    for (const ValueId value : node.produced()) {
      for (const SymExpr& size : program_.graph.values.at(value).meta.sizes) {
        const std::optional<SymbolId> symbol = size.as_symbol();
        if (!symbol || symbols_[*symbol]) continue;
        high_[*symbol] = std::min(high_[*symbol].value_or(*most), *most);
        low_[*symbol] = std::min(low_[*symbol].value_or(0), *high_[*symbol]);
      }
    }
  }

  void visit(ValueId id) {
    const Value& value = program_.graph.values.at(id);
    if (value.kind != ValueKind::tensor || value.meta.dtype == DType::unknown) return;
    bool exact = true;
    table_.metas[id] = evaluate(value.meta, exact);
    table_.upper_bound[id] = !exact;
    if (!exact) table_.exact = false;
    if (!table_.metas[id]) table_.bounded = false;
  }

  std::optional<ConcreteMeta> evaluate(const TensorMeta& meta, bool& exact) const {
    if (meta.sizes.size() != meta.strides.size()) return std::nullopt;
    ConcreteMeta result{meta.dtype, {}, {}, 0};
    const auto all = [&](const std::vector<SymExpr>& exprs, std::vector<std::int64_t>& numbers) {
      numbers.reserve(exprs.size());
      for (const SymExpr& expr : exprs) {
        const auto number = evaluate(expr, exact);
        if (!number || *number < 0) return false;
        numbers.push_back(*number);
      }
      return true;
    };
    if (!all(meta.sizes, result.sizes) || !all(meta.strides, result.strides)) return std::nullopt;
    const auto offset = evaluate(meta.storage_offset, exact);
    if (!offset || *offset < 0 || !element_count(result)) return std::nullopt;
    result.storage_offset = *offset;
    return result;
  }

  std::optional<std::int64_t> evaluate(const SymExpr& expr, bool& exact) const {
    if (const auto value = expr.evaluate(symbols_)) return value;
    exact = false;
    return expr.upper_bound(low_, high_);
  }

  const Program& program_;
  SymbolValues symbols_;
  SymbolValues low_, high_;  // of every symbol; equal where it is known
  ShapeTable table_;
};

}  // namespace

ShapeTable evaluate_shapes(const Program& program, SymbolValues symbols) {
  return ShapeEvaluator(program, std::move(symbols)).run();
}

}  // namespace lowtide::graph
