// Rules of products, convolutions, attention, norms and recurrent layers.
#include <algorithm>
#include <cctype>

#include "graph/batch_flow.hpp"

namespace lowtide::graph {
namespace {

/// Trailing dimensions that an image operator works on: 2 for avg_pool2d.
std::size_t spatial_dims(std::string_view name) {
  const std::size_t digit = name.find_first_of("123");
  return digit == std::string_view::npos ? 2 : static_cast<std::size_t>(name[digit] - '0');
}

/// All tensors of these arguments that have the batch have it at the same dimension.
Carried same_dimension(const NodeView& node, const std::vector<ValueId>& values) {
  std::optional<Carried> found;
  for (const ValueId value : values) {
    if (!node.flow(value).is_carried()) continue;
    const Carried& carried = node.flow(value).carried;
    if (found && (found->dim != carried.dim || found->fold != carried.fold))
      throw Mixes{"combines it with itself at another dimension"};
    found = carried;
  }
  if (!found) throw Mixes{"computes with the size itself"};
  found->counts = false;
  return *found;
}

/// Where the batch of a product of matrices is, both sides looked at from the end.
struct ProductSide {
  std::size_t from_end = 0;
  Fold fold;
};

/// The batch of a side that is among its batch dimensions; throws where it is not.
ProductSide batch_side(const NodeView& node, ValueId value) {
  const Carried& carried = node.flow(value).carried;
  return {node.rank(value) - carried.dim, carried.fold};
}

void require_one(const NodeView& node, ValueId value, std::size_t from_end) {
  if (node.rank(value) < from_end) return;
  const SymExpr& size = node.meta(value).sizes[node.rank(value) - from_end];
  if (!size.is_constant() || size.constant() != 1)
    throw Mixes{"combines it with a dimension of another tensor"};
}

std::vector<Flow> product(const NodeView& node, ValueId left, ValueId right) {
  const bool in_left = node.flow(left).is_carried(), in_right = node.flow(right).is_carried();
  if (!in_left && !in_right) throw Mixes{"computes with the size itself"};
  const std::size_t left_rank = node.rank(left), right_rank = node.rank(right);
  const std::size_t result_rank = node.rank(node.result());
  Carried carried;
  if (in_left && in_right) {
    const ProductSide a = batch_side(node, left), b = batch_side(node, right);
    if (left_rank < 3 || right_rank < 3 || a.from_end < 3 || a.from_end != b.from_end || a.fold != b.fold)
      throw Mixes{"multiplies it with itself"};
    return all_results(node, {.dim = result_rank - a.from_end, .fold = a.fold});
  }
  const ProductSide side = batch_side(node, in_left ? left : right);
  const std::size_t rank = in_left ? left_rank : right_rank;
  const std::size_t contracted = in_left || rank == 1 ? 1 : 2;
  if (side.from_end == contracted) throw Mixes{"sums over it"};
  if (side.from_end >= 3) require_one(node, in_left ? right : left, side.from_end);
  // A vector on the other side takes its dimension out of the result.
  const bool other_is_vector = (in_left ? right_rank : left_rank) == 1;
  if (other_is_vector && in_left) {
    carried.dim = result_rank - (side.from_end - 1);
  } else if (other_is_vector) {
    carried.dim = side.from_end == 1 ? result_rank - 1 : result_rank - (side.from_end - 1);
  } else {
    carried.dim = result_rank - side.from_end;
  }
  carried.fold = side.fold;
  return all_results(node, carried);
}

}  // namespace

std::vector<Flow> rule_linear(const NodeView& node) {
  node.require_no_size();
  node.require_free({"weight", "bias"});
  const ValueId input = node.required("input");
  Carried carried = node.flow(input).carried;
  if (carried.dim + 1 == node.rank(input)) throw Mixes{"sums over it"};
  carried.counts = false;
  return all_results(node, carried);
}

std::vector<Flow> rule_matmul(const NodeView& node) {
  node.require_no_size();
  const std::vector<ValueId> tensors = node.tensors();
  if (tensors.size() != 2) throw Mixes{"is no product of two tensors"};
  return product(node, tensors[0], tensors[1]);
}

std::vector<Flow> rule_addmm(const NodeView& node) {
  node.require_no_size();
  const std::vector<ValueId> tensors = node.tensors();
  if (tensors.size() != 3) throw Mixes{"is no product of two tensors"};
  const ValueId added = tensors[0];
  if (!node.flow(tensors[1]).is_carried() && !node.flow(tensors[2]).is_carried())
    throw Mixes{"adds it to a product without it"};
  std::vector<Flow> results = product(node, tensors[1], tensors[2]);
  const Carried& carried = results.front().carried;
  const std::size_t from_end = node.rank(node.result()) - carried.dim;
  if (!node.flow(added).is_carried()) {
    require_one(node, added, from_end);
  } else if (const ProductSide side = batch_side(node, added);
             side.from_end != from_end || side.fold != carried.fold) {
    throw Mixes{"combines it with itself at another dimension"};
  }
  return results;
}

/// Each operand that has the batch has it under one label, which stays in the result.
std::vector<Flow> rule_einsum(const NodeView& node) {
  node.require_no_size();
  const Argument* argument = node.node().find_argument("equation");
  const auto* text = argument == nullptr ? nullptr : std::get_if<std::string>(&argument->value);
  if (text == nullptr) throw Mixes{"has no equation"};
  std::string equation = *text;
  std::erase_if(equation, [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; });
  const std::size_t arrow = equation.find("->");
  if (arrow == std::string::npos || equation.find('.') != std::string::npos)
    throw Mixes{"has an equation that is not followed"};
  const std::string result = equation.substr(arrow + 2);
  std::vector<std::string> operands(1);
  for (const char c : equation.substr(0, arrow)) {
    if (c == ',') {
      operands.emplace_back();
    } else {
      operands.back() += c;
    }
  }
  const std::vector<ValueId> tensors = node.tensors();
  if (tensors.size() != operands.size()) throw Mixes{"has an equation that is not followed"};
  char label = 0;
  Fold fold;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (operands[i].size() != node.rank(tensors[i])) throw Mixes{"has an equation that is not followed"};
    if (!node.flow(tensors[i]).is_carried()) continue;
    const Carried& carried = node.flow(tensors[i]).carried;
    const char own = operands[i][carried.dim];
    if (label != 0 && (own != label || carried.fold != fold)) throw Mixes{"multiplies it with itself"};
    label = own;
    fold = carried.fold;
  }
  if (std::count(result.begin(), result.end(), label) != 1) throw Mixes{"sums over it"};
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto uses = std::count(operands[i].begin(), operands[i].end(), label);
    if (uses > 1) throw Mixes{"takes its diagonal"};
    if (uses == 1 && !node.flow(tensors[i]).is_carried())
      require_one(node, tensors[i], operands[i].size() - operands[i].find(label));
  }
  return all_results(node, {.dim = result.find(label), .fold = fold});
}

std::vector<Flow> rule_attention(const NodeView& node) {
  node.require_no_size();
  const Argument* dropout = node.node().find_argument("dropout_p");
  const auto* p = dropout == nullptr ? nullptr : std::get_if<double>(&dropout->value);
  if (p != nullptr && *p != 0) throw Mixes{"draws random numbers for all of it together"};
  const ValueId query = node.required("query");
  std::optional<ProductSide> batch;
  std::vector<ValueId> values{query, node.required("key"), node.required("value")};
  if (const auto mask = node.tensor("attn_mask")) values.push_back(*mask);
  for (const ValueId value : values) {
    if (!node.flow(value).is_carried()) continue;
    const ProductSide side = batch_side(node, value);
    if (side.from_end < 3) throw Mixes{"lets each index look at the others"};
    if (batch && (side.from_end != batch->from_end || side.fold != batch->fold))
      throw Mixes{"combines it with itself at another dimension"};
    batch = side;
  }
  if (!batch) throw Mixes{"computes with the size itself"};
  for (const ValueId value : values) {
    if (!node.flow(value).is_carried()) require_one(node, value, batch->from_end);
  }
  return all_results(node, {.dim = node.rank(node.result()) - batch->from_end, .fold = batch->fold});
}

std::vector<Flow> rule_convolution(const NodeView& node) {
  node.require_no_size();
  node.require_free({"weight", "bias"});
  const ValueId input = node.required("input");
  Carried carried = node.flow(input).carried;
  if (carried.dim != 0 || node.rank(input) != node.rank(node.required("weight")))
    throw Mixes{"slides over it"};
  carried.counts = false;
  return all_results(node, carried);
}

/// Pooling, resizing: the last dimensions only.
std::vector<Flow> rule_image(const NodeView& node) {
  node.require_no_size();
  const std::vector<ValueId> tensors = node.tensors();
  Carried carried = same_dimension(node, tensors);
  if (tensors.size() != 1) throw Mixes{"takes more tensors than is known of it"};
  const std::string op = node.node().op_name();
  if (carried.dim + spatial_dims(plain_name(op)) >= node.rank(tensors.front())) throw Mixes{"slides over it"};
  return all_results(node, carried);
}

/// The inputs have the batch in front, weights have none.
std::vector<Flow> rule_rows_first(const NodeView& node) {
  node.require_no_size();
  const std::vector<ValueId> tensors = node.tensors();
  const Carried carried = same_dimension(node, tensors);
  const bool moves_pixels = node.node().op_name().starts_with("aten::pixel");  // has a form without batch
  if (carried.dim != 0 || node.rank(tensors.front()) < (moves_pixels ? 4 : 2)) throw Mixes{"works along it"};
  if (!node.flow(tensors.front()).is_carried())
    throw Mixes{"combines it with a tensor that does not have it"};
  for (const std::string_view name : {"w_ih", "w_hh", "b_ih", "b_hh"}) node.require_free({name});
  return all_results(node, carried);
}

/// lstm.input and its kin: sequence, batch, features or batch first; states have the batch second.
std::vector<Flow> rule_recurrent(const NodeView& node) {
  node.require_no_size();
  const ValueId input = node.required("input");
  if (node.node().overload() != "input" || node.rank(input) != 3 || node.flag("train", true))
    throw Mixes{"is not known to keep indices apart in this form"};
  const std::size_t dim = node.flag("batch_first", false) ? 0 : 1;
  if (!node.flow(input).is_carried() || node.flow(input).carried.dim != dim) throw Mixes{"goes along it"};
  const Fold fold = node.flow(input).carried.fold;
  const Argument* states = node.node().find_argument("hx");
  std::vector<ValueId> values;
  if (states != nullptr) append_read_values(states->value, values);
  for (const ValueId state : values) {
    const Flow& flow = node.flow(state);
    if (!flow.is_carried() || flow.carried.dim != 1 || flow.carried.fold != fold)
      throw Mixes{"has a state that all indices share"};
  }
  const Argument* weights = node.node().find_argument("params");
  values.clear();
  if (weights != nullptr) append_read_values(weights->value, values);
  if (std::any_of(values.begin(), values.end(), [&](ValueId value) { return node.flow(value).is_carried(); }))
    throw Mixes{"has weights that depend on it"};
  std::vector<Flow> results = all_results(node, {.dim = 1, .fold = fold});
  if (!results.empty()) results.front().carried.dim = dim;
  return results;
}

std::vector<Flow> rule_pad(const NodeView& node) {
  node.require_no_size();
  const ValueId self = node.required("self");
  Carried carried = node.flow(self).carried;
  const std::size_t touched = (node.length("pad") + 1) / 2;  // of the last dimensions, two numbers each
  if (carried.dim + touched >= node.rank(self)) throw Mixes{"puts something beside it"};
  carried.counts = false;
  return all_results(node, carried);
}

std::vector<Flow> rule_layer_norm(const NodeView& node) {
  node.require_no_size();
  node.require_free({"weight", "bias"});
  const ValueId input = node.required("input");
  Carried carried = node.flow(input).carried;
  const auto shape = node.integers("normalized_shape");
  if (!shape || carried.dim + shape->size() >= node.rank(input)) throw Mixes{"normalises over it"};
  carried.counts = false;
  return all_results(node, carried);
}

std::vector<Flow> rule_group_norm(const NodeView& node) {
  node.require_no_size({"N"});
  node.require_free({"weight", "bias"});
  const ValueId input = node.required("input");
  Carried carried = node.flow(input).carried;
  if (carried.dim != 0) throw Mixes{"normalises over it"};
  if (node.is_given("running_mean")) throw Mixes{"keeps statistics of all of it"};
  carried.counts = false;
  return all_results(node, carried);
}

/// With statistics that are given; they are per channel, dimension 1.
std::vector<Flow> rule_batch_norm(const NodeView& node) {
  node.require_no_size();
  node.require_free({"weight", "bias", "running_mean", "running_var"});
  const bool fixed = node.node().op_name() == "aten::_native_batch_norm_legit_no_training";
  if (!fixed && node.flag("training", true)) throw Mixes{"normalises over it"};
  if (fixed && node.node().produced().size() > 1) throw Mixes{"returns statistics of all of it"};
  Carried carried = node.flow(node.required("input")).carried;
  if (carried.dim == 1) throw Mixes{"has weights along it"};
  carried.counts = false;
  return all_results(node, carried);
}

std::vector<Flow> rule_embedding(const NodeView& node) {
  node.require_no_size();
  node.require_free({"weight"});
  Carried carried = node.flow(node.required("indices")).carried;
  carried.counts = false;
  return all_results(node, carried);
}

std::vector<Flow> rule_one_hot(const NodeView& node) {
  node.require_no_size();
  if (node.integer("num_classes", -1) <= 0) throw Mixes{"makes as many classes as the largest of all of it"};
  Carried carried = node.flow(node.required("self")).carried;
  carried.counts = false;
  return all_results(node, carried);
}

}  // namespace lowtide::graph
