// Inside the analysis of batch_independence.hpp: what is known of a value, sizes as multiples of the batch,
// and the node at hand as the rules see it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.hpp"

namespace lowtide::graph {

/// A size expression under several assignments of the symbols. Two expressions are taken for equal where
/// their numbers are: in most assignments the symbols are distinct primes, so products agree only where their
/// factors do; the others have few and many elements, as max(32, s1) is s1 only in some of them.
inline constexpr std::size_t kProbes = 4;
using Numbers = std::array<std::int64_t, kProbes>;

/// Sizes seen from one symbol, the batch.
class BatchSizes {
 public:
  BatchSizes(const Program& program, SymbolId batch);

  /// True also where the expression is unknown.
  bool contains_batch(const SymExpr& expr) const;
  /// What it is where it does not contain the batch; nothing where it cannot be evaluated.
  std::optional<Numbers> numbers(const SymExpr& expr) const;
  /// expr = batch * factor; nothing where it is no such multiple.
  std::optional<Numbers> factor(const SymExpr& expr) const;

 private:
  SymbolId batch_;
  std::array<SymbolValues, kProbes> others_;
};

inline constexpr Numbers kOne{1, 1, 1, 1};

/// What else is folded into the dimension of a batch: it has outer * batch * inner indices, and those of b in
/// the batch are (o * batch + b) * inner + i.
struct Fold {
  Numbers outer = kOne;
  Numbers inner = kOne;
  bool operator==(const Fold&) const = default;
};

/// Of a tensor: dimension `dim` has the batch, and what is at b of the batch depends on nothing but what is
/// at b in the inputs.
struct Carried {
  std::size_t dim = 0;
  Fold fold;
  /// The value at index b of the batch is b, everywhere.
  bool counts = false;
};

struct Flow {
  enum class Kind : std::uint8_t {
    free,     // does not depend on the batch in any way
    sized,    // a number computed from the size of the batch
    carried,  // a tensor with the batch in it
  };
  Kind kind = Kind::free;
  Carried carried{};

  static Flow of(const Carried& carried) { return {Kind::carried, carried}; }
  bool is_carried() const { return kind == Kind::carried; }
};

/// Thrown by rules: the reason why the node mixes, to be read after its name.
struct Mixes {
  std::string reason;
};

/// A node whose arguments depend on the batch.
class NodeView {
 public:
  NodeView(const Graph& graph, const Node& node, const std::vector<Flow>& flows, const BatchSizes& sizes)
      : graph_(graph), node_(node), flows_(flows), sizes_(sizes) {}

  const Node& node() const { return node_; }
  const BatchSizes& sizes() const { return sizes_; }
  const Flow& flow(ValueId value) const { return flows_[value]; }
  const TensorMeta& meta(ValueId value) const { return graph_.values[value].meta; }
  std::size_t rank(ValueId value) const { return meta(value).sizes.size(); }
  bool is_tensor(ValueId value) const { return graph_.values[value].kind == ValueKind::tensor; }
  /// The tensor of an argument; nothing where it is left out or None.
  std::optional<ValueId> tensor(std::string_view argument) const;
  /// The same, which must be there.
  ValueId required(std::string_view argument) const;
  /// Its tensors, lists flattened; without `out`, whose content is not read.
  std::vector<ValueId> tensors() const;
  /// The first of them. Throws Mixes where there is none.
  ValueId first_tensor() const;
  /// First produced value. Throws Mixes where there is none.
  ValueId result() const;
  /// A constant integer; `otherwise` where it is left out. Throws Mixes where it is no constant.
  std::int64_t integer(std::string_view argument, std::int64_t otherwise) const;
  bool flag(std::string_view argument, bool otherwise) const;
  /// A list of constants, or one of them; nothing where it is left out, None or empty.
  std::optional<std::vector<std::int64_t>> integers(std::string_view argument) const;
  /// Items of a list of integers, constant or not; 0 where it is left out.
  std::size_t length(std::string_view argument) const;
  bool is_given(std::string_view argument) const;
  bool is_sized(std::string_view argument) const;
  /// Whether a tensor can hold the indices of every batch: i8 and f16 cannot.
  bool holds_counts(ValueId value) const;
  /// Counts from the front: -1 of rank 3 is 2.
  std::size_t dimension(std::int64_t dim, std::size_t rank) const;
  /// Throws Mixes unless the tensors do not depend on the batch. None is fine.
  void require_free(std::initializer_list<std::string_view> arguments) const;
  /// Throws Mixes where a number computed from the batch's size is passed, but to these arguments.
  void require_no_size(std::initializer_list<std::string_view> but = {}) const;
  /// The only dimension of a result whose size holds the batch, as a multiple of it. `outer`: how much is
  /// folded around the batch. Throws Mixes.
  Carried carried_by_size(ValueId value, const Numbers& outer = kOne) const;

 private:
  const Graph& graph_;
  const Node& node_;
  const std::vector<Flow>& flows_;
  const BatchSizes& sizes_;
};

/// What becomes of the results, one per produced value. Throws Mixes.
using BatchRule = std::vector<Flow> (*)(const NodeView&);

/// The rule of "aten::NAME"; null where there is none. In-place and out= forms have the rule of their plain
/// form.
BatchRule find_batch_rule(std::string_view op_name);

/// All results carry the batch at the same place.
std::vector<Flow> all_results(const NodeView& node, const Carried& carried);

/// "mm" and "add" of "aten::mm" and "aten::add_".
std::string_view plain_name(std::string_view op_name);

// Rules by family.
std::vector<Flow> rule_pointwise(const NodeView& node);
std::vector<Flow> rule_copy(const NodeView& node);
std::vector<Flow> rule_dropout(const NodeView& node);
std::vector<Flow> rule_shape_only(const NodeView& node);
std::vector<Flow> rule_extreme(const NodeView& node);
std::vector<Flow> rule_reduce(const NodeView& node);
std::vector<Flow> rule_along(const NodeView& node);
std::vector<Flow> rule_gather(const NodeView& node);
std::vector<Flow> rule_linear(const NodeView& node);
std::vector<Flow> rule_matmul(const NodeView& node);
std::vector<Flow> rule_addmm(const NodeView& node);
std::vector<Flow> rule_einsum(const NodeView& node);
std::vector<Flow> rule_attention(const NodeView& node);
std::vector<Flow> rule_convolution(const NodeView& node);
std::vector<Flow> rule_image(const NodeView& node);
std::vector<Flow> rule_rows_first(const NodeView& node);
std::vector<Flow> rule_recurrent(const NodeView& node);
std::vector<Flow> rule_pad(const NodeView& node);
std::vector<Flow> rule_layer_norm(const NodeView& node);
std::vector<Flow> rule_group_norm(const NodeView& node);
std::vector<Flow> rule_batch_norm(const NodeView& node);
std::vector<Flow> rule_embedding(const NodeView& node);
std::vector<Flow> rule_one_hot(const NodeView& node);
std::vector<Flow> rule_triangle(const NodeView& node);
std::vector<Flow> rule_same_order(const NodeView& node);
std::vector<Flow> rule_transpose(const NodeView& node);
std::vector<Flow> rule_expand(const NodeView& node);
std::vector<Flow> rule_repeat(const NodeView& node);
std::vector<Flow> rule_slice(const NodeView& node);
std::vector<Flow> rule_part(const NodeView& node);
std::vector<Flow> rule_join(const NodeView& node);
std::vector<Flow> rule_index(const NodeView& node);
std::vector<Flow> rule_fill(const NodeView& node);
std::vector<Flow> rule_arange(const NodeView& node);
std::vector<Flow> rule_assertion(const NodeView& node);
std::vector<Flow> rule_size(const NodeView& node);

}  // namespace lowtide::graph
