// Rules of views, parts, joins, indexing and of tensors made from sizes.
#include <algorithm>

#include "base/checked_math.hpp"
#include "graph/batch_flow.hpp"

namespace lowtide::graph {
namespace {

/// Elements of one index of everything outside a dimension: the product of the sizes before it.
Numbers outside(const NodeView& node, ValueId value, std::size_t dim) {
  Numbers product = kOne;
  for (std::size_t d = 0; d < dim; ++d) {
    const auto size = node.sizes().numbers(node.meta(value).sizes[d]);
    if (!size) throw Mixes{"has sizes that cannot be followed"};
    for (std::size_t probe = 0; probe < kProbes; ++probe) {
      const auto next = checked_mul(product[probe], (*size)[probe]);
      if (!next || *next < 1) throw Mixes{"has sizes that cannot be followed"};
      product[probe] = *next;
    }
  }
  return product;
}

/// A tensor that does not depend on the batch made into one that has it as a size.
std::vector<Flow> by_size(const NodeView& node) {
  std::vector<Flow> results;
  for (const ValueId value : node.node().produced()) {
    const auto& sizes = node.meta(value).sizes;
    const bool holds = std::any_of(sizes.begin(), sizes.end(),
                                   [&](const SymExpr& size) { return node.sizes().contains_batch(size); });
    results.push_back(holds ? Flow::of(node.carried_by_size(value)) : Flow{});
  }
  return results;
}

constexpr std::int64_t kToTheEnd = INT64_MAX;

/// Whether a slice leaves the whole dimension.
bool takes_all(const NodeView& node) {
  if (plain_name(node.node().op_name()) == "narrow") return false;
  return node.integer("start", 0) == 0 && node.integer("step", 1) == 1 && !node.is_sized("end") &&
         node.integer("end", kToTheEnd) == kToTheEnd;
}

}  // namespace

/// Views and reshapes keep elements in order. What lies outside of the batch, in dimensions before its own
/// and folded into it, stays outside: it only moves between the two.
std::vector<Flow> rule_same_order(const NodeView& node) {
  const ValueId self = node.first_tensor();
  if (!node.flow(self).is_carried()) return by_size(node);
  const Carried& carried = node.flow(self).carried;
  const std::string op = node.node().op_name();
  if (plain_name(op) == "squeeze") {
    if (!node.is_given("dim")) throw Mixes{"drops it where it is 1"};
    for (const std::int64_t dim : node.integers("dim").value_or(std::vector<std::int64_t>{}))
      if (node.dimension(dim, node.rank(self)) == carried.dim) throw Mixes{"drops it where it is 1"};
  }
  Numbers outer = outside(node, self, carried.dim);
  const std::size_t dim = node.carried_by_size(node.result()).dim;
  const Numbers outer_of_result = outside(node, node.result(), dim);
  for (std::size_t probe = 0; probe < kProbes; ++probe) {
    const auto all = checked_mul(outer[probe], carried.fold.outer[probe]);
    if (!all || *all % outer_of_result[probe] != 0) throw Mixes{"folds another dimension around it"};
    outer[probe] = *all / outer_of_result[probe];
  }
  Carried result = node.carried_by_size(node.result(), outer);
  result.counts = carried.counts;
  return all_results(node, result);
}

/// The permutation is not read: the recorded size tells where the dimension went, and there is only one.
std::vector<Flow> rule_transpose(const NodeView& node) {
  const ValueId self = node.first_tensor();
  if (!node.flow(self).is_carried()) throw Mixes{"computes with the size itself"};
  Carried result = node.carried_by_size(node.result(), node.flow(self).carried.fold.outer);
  result.counts = node.flow(self).carried.counts;
  return all_results(node, result);
}

std::vector<Flow> rule_expand(const NodeView& node) {
  const ValueId self = node.first_tensor();
  if (!node.flow(self).is_carried()) return by_size(node);
  const Carried& carried = node.flow(self).carried;
  Carried result = node.carried_by_size(node.result(), carried.fold.outer);
  if (node.rank(self) - carried.dim != node.rank(node.result()) - result.dim)
    throw Mixes{"repeats it along itself"};
  result.counts = carried.counts;
  return all_results(node, result);
}

std::vector<Flow> rule_repeat(const NodeView& node) {
  const ValueId self = node.required("self");
  if (!node.flow(self).is_carried()) {
    if (node.node().op_name() == "aten::repeat_interleave") throw Mixes{"computes with the size itself"};
    return by_size(node);
  }
  Carried carried = node.flow(self).carried;
  node.require_no_size({"repeats", "dims"});
  if (node.node().op_name() == "aten::repeat_interleave") {
    node.integer("repeats", 0);  // a tensor of repeats is refused
    if (!node.is_given("dim")) throw Mixes{"flattens it"};
    return all_results(node, node.carried_by_size(node.result(), carried.fold.outer));  // runs of each index
  }
  Carried result = node.carried_by_size(node.result(), carried.fold.outer);
  if (result.fold != carried.fold || node.rank(self) - carried.dim != node.rank(node.result()) - result.dim)
    throw Mixes{"repeats it along itself"};
  result.counts = carried.counts;
  return all_results(node, result);
}

std::vector<Flow> rule_slice(const NodeView& node) {
  const ValueId self = node.required("self");
  const std::size_t dim = node.dimension(node.integer("dim", 0), node.rank(self));
  if (!node.flow(self).is_carried()) {  // as many rows of a table as the batch has
    node.require_no_size({"end", "length"});
    if (node.integer("start", 0) != 0 || node.integer("step", 1) != 1)
      throw Mixes{"computes with the size itself"};
    return by_size(node);
  }
  const Carried& carried = node.flow(self).carried;
  if (dim == carried.dim) {
    if (!takes_all(node)) throw Mixes{"cuts a part out of it"};
    return all_results(node, carried);
  }
  node.require_no_size();
  return all_results(node, carried);
}

/// select, split, unbind: one dimension is taken apart.
std::vector<Flow> rule_part(const NodeView& node) {
  node.require_no_size();
  const ValueId self = node.required("self");
  Carried carried = node.flow(self).carried;
  const std::size_t dim = node.dimension(node.integer("dim", 0), node.rank(self));
  if (dim == carried.dim) throw Mixes{"takes it apart"};
  const std::string op = node.node().op_name();
  if ((op == "aten::select" || op == "aten::unbind") && dim < carried.dim) --carried.dim;
  return all_results(node, carried);
}

std::vector<Flow> rule_join(const NodeView& node) {
  node.require_no_size();
  std::optional<Carried> found;
  const std::vector<ValueId> tensors = node.tensors();
  for (const ValueId value : tensors) {
    if (!node.flow(value).is_carried()) throw Mixes{"joins it with a tensor that does not have it"};
    const Carried& carried = node.flow(value).carried;
    if (found && (carried.dim != found->dim || carried.fold != found->fold))
      throw Mixes{"joins it with itself at another dimension"};
    found = carried;
  }
  if (!found) throw Mixes{"computes with the size itself"};
  const bool stacks = node.node().op_name() == "aten::stack";
  const std::size_t rank = node.rank(tensors.front()) + (stacks ? 1 : 0);
  const std::size_t dim = node.dimension(node.integer("dim", 0), rank);
  if (!stacks && dim == found->dim) throw Mixes{"puts something beside it"};
  if (stacks && dim <= found->dim) ++found->dim;
  found->counts = false;
  return all_results(node, *found);
}

/// x[i, j, :]: index tensors are broadcast against each other; the dimension of a batch among them, or one of
/// x that is not indexed. x[i] of a batch x is a batch where i counts, as masks are made from positions.
std::vector<Flow> rule_index(const NodeView& node) {
  node.require_no_size();
  const ValueId self = node.required("self");
  const Argument* argument = node.node().find_argument("indices");
  const auto* indices = argument == nullptr ? nullptr : std::get_if<TensorList>(&argument->value);
  if (indices == nullptr) throw Mixes{"has no list of indices"};
  const Flow& whole = node.flow(self);
  std::optional<std::size_t> from_end;  // the batch among the broadcast dimensions of the indices
  Fold fold = whole.is_carried() ? whole.carried.fold : Fold{};
  bool row_by_row = false;
  for (std::size_t d = 0; d < indices->values.size(); ++d) {
    if (!indices->values[d]) continue;
    const ValueId index = *indices->values[d];
    const Flow& flow = node.flow(index);
    const DType dtype = node.meta(index).dtype;
    const bool picks_rows = whole.is_carried() && whole.carried.dim == d;
    if (!flow.is_carried()) {
      if (picks_rows) throw Mixes{"picks from it"};
      continue;
    }
    if (dtype == DType::boolean || dtype == DType::u8) throw Mixes{"picks those that a mask selects"};
    const std::size_t place = node.rank(index) - flow.carried.dim;
    if (from_end && (*from_end != place || flow.carried.fold != fold))
      throw Mixes{"combines it with itself at another dimension"};
    from_end = place;
    fold = flow.carried.fold;
    if (picks_rows) {
      if (!flow.carried.counts || whole.carried.fold != Fold{}) throw Mixes{"picks from it"};
      row_by_row = true;
    } else if (flow.carried.counts && d < node.rank(self) && !node.meta(self).sizes[d].is_constant()) {
      throw Mixes{"looks up its positions in a dimension of another size"};
    }
  }
  if (whole.is_carried() && from_end && !row_by_row)
    throw Mixes{"combines it with itself at another dimension"};
  for (const auto& index : indices->values) {  // what is broadcast against it has one element there
    if (!index || !from_end || node.flow(*index).is_carried() || node.rank(*index) < *from_end) continue;
    const SymExpr& size = node.meta(*index).sizes[node.rank(*index) - *from_end];
    if (!size.is_constant() || size.constant() != 1)
      throw Mixes{"combines it with a dimension of another tensor"};
  }
  return all_results(node, node.carried_by_size(node.result(), fold.outer));
}

/// zeros(n, 4), ones_like(x): nothing but the size.
std::vector<Flow> rule_fill(const NodeView& node) {
  node.require_no_size({"size"});
  return by_size(node);
}

std::vector<Flow> rule_arange(const NodeView& node) {
  node.require_no_size({"start", "end"});
  if (node.is_sized("start")) throw Mixes{"counts from its size"};
  // A start that is no constant counts from somewhere else.
  const Argument* start = node.node().find_argument("start");
  const bool from_zero = start == nullptr || (std::get_if<std::int64_t>(&start->value) != nullptr &&
                                              node.integer("start", 0) == 0);
  const Argument* step = node.node().find_argument("step");
  const bool by_one =
      step == nullptr || (std::get_if<std::int64_t>(&step->value) != nullptr && node.integer("step", 1) == 1);
  std::vector<Flow> results = by_size(node);
  for (Flow& flow : results)
    flow.carried.counts = flow.is_carried() && from_zero && by_one && node.holds_counts(node.result()) &&
                          flow.carried.fold == Fold{};
  return results;
}

}  // namespace lowtide::graph
