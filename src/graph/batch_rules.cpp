// Which operator has which rule, and the rules of arithmetic that goes element by element or along
// dimensions.
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "graph/batch_flow.hpp"

namespace lowtide::graph {
namespace {

struct Family {
  BatchRule rule;
  std::initializer_list<std::string_view> names;
};

const std::unordered_map<std::string_view, BatchRule>& rules() {
  static const auto table = [] {
    const std::initializer_list<Family> families{
        {rule_pointwise,
         {"abs",
          "neg",
          "relu",
          "relu6",
          "gelu",
          "silu",
          "mish",
          "elu",
          "celu",
          "selu",
          "leaky_relu",
          "hardswish",
          "hardsigmoid",
          "hardtanh",
          "sigmoid",
          "log_sigmoid",
          "softplus",
          "tanh",
          "softshrink",
          "hardshrink",
          "threshold",
          "sin",
          "cos",
          "tan",
          "asin",
          "acos",
          "atan",
          "sinh",
          "cosh",
          "asinh",
          "acosh",
          "atanh",
          "exp",
          "exp2",
          "expm1",
          "log",
          "log2",
          "log10",
          "log1p",
          "sqrt",
          "rsqrt",
          "reciprocal",
          "square",
          "sign",
          "sgn",
          "floor",
          "ceil",
          "round",
          "trunc",
          "frac",
          "erf",
          "erfc",
          "erfinv",
          "isnan",
          "isinf",
          "isfinite",
          "logical_not",
          "bitwise_not",
          "clamp",
          "clamp_min",
          "clamp_max",
          "clip",
          "nan_to_num",
          "real",
          "imag",
          "conj",
          "conj_physical",
          "angle",
          "deg2rad",
          "rad2deg",
          "sinc",
          "lgamma",
          "digamma",
          "add",
          "sub",
          "rsub",
          "mul",
          "multiply",
          "div",
          "divide",
          "true_divide",
          "floor_divide",
          "remainder",
          "fmod",
          "pow",
          "float_power",
          "atan2",
          "maximum",
          "minimum",
          "fmax",
          "fmin",
          "eq",
          "ne",
          "not_equal",
          "lt",
          "less",
          "le",
          "gt",
          "greater",
          "ge",
          "logical_and",
          "logical_or",
          "logical_xor",
          "bitwise_and",
          "bitwise_or",
          "bitwise_xor",
          "__and__",
          "__or__",
          "__xor__",
          "where",
          "masked_fill",
          "lerp",
          "addcmul",
          "addcdiv",
          "copysign",
          "hypot",
          "xlogy",
          "polar",
          "complex",
          "logaddexp",
          "fill",
          "copy"}},
        {rule_copy,
         {"clone", "contiguous", "alias", "detach", "to", "_to_copy", "lift_fresh_copy", "lift_fresh",
          "resolve_conj", "resolve_neg", "type_as"}},
        {rule_dropout, {"dropout", "feature_dropout", "alpha_dropout"}},
        {rule_extreme, {"max", "min"}},
        {rule_reduce, {"sum",           "nansum", "mean",     "nanmean",  "amax",   "amin",
                       "prod",          "any",    "all",      "argmax",   "argmin", "logsumexp",
                       "var",           "std",    "var_mean", "std_mean", "norm",   "linalg_vector_norm",
                       "count_nonzero", "median", "nanmedian"}},
        {rule_along, {"softmax",  "_softmax",  "log_softmax",  "_log_softmax", "cumsum",  "cumprod",
                      "cummax",   "cummin",    "logcumsumexp", "sort",         "argsort", "topk",
                      "glu",      "diff",      "flip",         "roll",         "fft_fft", "fft_ifft",
                      "fft_rfft", "fft_irfft", "scatter",      "scatter_add",  "unfold"}},
        {rule_gather, {"gather", "index_select"}},
        {rule_linear, {"linear"}},
        {rule_matmul, {"matmul", "mm", "bmm"}},
        {rule_addmm, {"addmm", "baddbmm"}},
        {rule_einsum, {"einsum"}},
        {rule_attention, {"scaled_dot_product_attention"}},
        {rule_convolution,
         {"conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
          "convolution", "_convolution"}},
        {rule_image,
         {"avg_pool1d",
          "avg_pool2d",
          "avg_pool3d",
          "max_pool1d",
          "max_pool2d",
          "max_pool3d",
          "max_pool2d_with_indices",
          "adaptive_avg_pool1d",
          "adaptive_avg_pool2d",
          "adaptive_avg_pool3d",
          "_adaptive_avg_pool2d",
          "adaptive_max_pool2d",
          "upsample_nearest1d",
          "upsample_nearest2d",
          "upsample_nearest3d",
          "_upsample_nearest_exact1d",
          "_upsample_nearest_exact2d",
          "upsample_linear1d",
          "upsample_bilinear2d",
          "upsample_bicubic2d",
          "upsample_trilinear3d",
          "_upsample_bilinear2d_aa",
          "_upsample_bicubic2d_aa",
          "reflection_pad1d",
          "reflection_pad2d",
          "replication_pad1d",
          "replication_pad2d"}},
        {rule_rows_first,
         {"lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell", "grid_sampler", "grid_sampler_2d",
          "im2col", "col2im", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle"}},
        {rule_recurrent, {"lstm", "gru", "rnn_tanh", "rnn_relu"}},
        {rule_pad, {"pad", "constant_pad_nd"}},
        {rule_layer_norm, {"layer_norm", "native_layer_norm", "rms_norm", "_fused_rms_norm"}},
        {rule_group_norm, {"group_norm", "native_group_norm", "instance_norm"}},
        {rule_batch_norm, {"batch_norm", "_native_batch_norm_legit_no_training"}},
        {rule_embedding, {"embedding"}},
        {rule_one_hot, {"one_hot"}},
        {rule_triangle, {"tril", "triu"}},
        {rule_same_order,
         {"view", "reshape", "_unsafe_view", "view_as", "reshape_as", "flatten", "unflatten", "unsqueeze",
          "squeeze", "view_as_real", "view_as_complex"}},
        {rule_transpose, {"transpose", "swapaxes", "permute", "movedim", "t", "numpy_T", "mT", "matrix_H"}},
        {rule_expand, {"expand", "expand_as", "broadcast_to"}},
        {rule_repeat, {"repeat", "tile", "repeat_interleave"}},
        {rule_slice, {"slice", "narrow"}},
        {rule_part,
         {"select", "split", "split_with_sizes", "chunk", "tensor_split", "unbind", "unsafe_split",
          "unsafe_chunk"}},
        {rule_join, {"cat", "concat", "concatenate", "stack"}},
        {rule_index, {"index"}},
        {rule_fill,
         {"zeros", "ones", "full", "empty", "new_zeros", "new_ones", "new_full", "new_empty", "zeros_like",
          "ones_like", "full_like", "empty_like", "zero"}},
        {rule_arange, {"arange"}},
        {rule_assertion,
         {"_assert_tensor_metadata", "_assert_scalar", "sym_constrain_range",
          "sym_constrain_range_for_size"}},
        {rule_size, {"sym_size", "sym_numel", "sym_stride"}}};
    std::unordered_map<std::string_view, BatchRule> rule_of;
    for (const Family& family : families) {
      for (const std::string_view name : family.names) rule_of.emplace(name, family.rule);
    }
    return rule_of;
  }();
  return table;
}

/// Constants that leave a count as it is: x + 0, x * 1.
bool leaves_as_is(const NodeView& node) {
  const std::string op = node.node().op_name();
  const std::string_view name = plain_name(op);
  const Argument* other = node.node().find_argument("other");
  const auto* number = other == nullptr ? nullptr : std::get_if<std::int64_t>(&other->value);
  if (number == nullptr) return false;
  return ((name == "add" || name == "sub") && *number == 0) || (name == "mul" && *number == 1);
}

/// The batch of a broadcast: all that carry it do so at the same place counted from the end, all others have
/// one element there or fewer dimensions.
std::vector<Flow> broadcast(const NodeView& node, bool keeps_counts) {
  node.require_no_size();
  const std::vector<ValueId> tensors = node.tensors();
  std::optional<Carried> found;
  std::size_t from_end = 0;
  for (const ValueId value : tensors) {
    if (!node.flow(value).is_carried()) continue;
    const Carried& carried = node.flow(value).carried;
    const std::size_t place = node.rank(value) - carried.dim;
    if (found && (place != from_end || carried.fold != found->fold))
      throw Mixes{"combines it with itself at another dimension"};
    if (!found) found = carried;
    from_end = place;
  }
  if (!found) throw Mixes{"computes with the size itself"};
  for (const ValueId value : tensors) {
    if (node.flow(value).is_carried() || node.rank(value) < from_end) continue;
    const SymExpr& size = node.meta(value).sizes[node.rank(value) - from_end];
    if (!size.is_constant() || size.constant() != 1)
      throw Mixes{"combines it with a dimension of another tensor"};
  }
  found->dim = node.rank(node.result()) - from_end;
  found->counts = found->counts && keeps_counts && tensors.size() == 1;
  return all_results(node, *found);
}

}  // namespace

std::string_view plain_name(std::string_view op_name) {
  if (op_name.starts_with("aten::")) op_name.remove_prefix(6);
  if (op_name.ends_with('_') && !op_name.ends_with("__")) op_name.remove_suffix(1);
  return op_name;
}

BatchRule find_batch_rule(std::string_view op_name) {
  if (!op_name.starts_with("aten::")) return nullptr;
  const auto found = rules().find(plain_name(op_name));
  return found == rules().end() ? nullptr : found->second;
}

std::vector<Flow> all_results(const NodeView& node, const Carried& carried) {
  return std::vector<Flow>(node.node().produced().size(), Flow::of(carried));
}

std::vector<Flow> rule_pointwise(const NodeView& node) {
  const bool only_condition = node.node().find_argument("condition") != nullptr && !node.is_given("self");
  if (only_condition && !node.is_given("input")) throw Mixes{"collects positions"};  // where(condition)
  return broadcast(node, leaves_as_is(node));
}

std::vector<Flow> rule_copy(const NodeView& node) {
  node.require_no_size();
  const ValueId self = node.first_tensor();  // others tell only dtype and device
  if (!node.flow(self).is_carried()) return std::vector<Flow>(node.node().produced().size());
  Carried carried = node.flow(self).carried;
  carried.counts = carried.counts && node.holds_counts(node.result());
  return all_results(node, carried);
}

std::vector<Flow> rule_dropout(const NodeView& node) {
  if (node.flag("train", true)) throw Mixes{"draws random numbers for all of it together"};
  return rule_copy(node);
}

/// max and min of two tensors go element by element, of one along a dimension.
std::vector<Flow> rule_extreme(const NodeView& node) {
  return node.is_given("other") ? rule_pointwise(node) : rule_reduce(node);
}

std::vector<Flow> rule_reduce(const NodeView& node) {
  node.require_no_size();
  const ValueId self = node.first_tensor();
  Carried carried = node.flow(self).carried;
  const auto dims = node.integers("dim");
  if (!dims) throw Mixes{"reduces all dimensions, this one included"};
  std::size_t before = 0;
  for (const std::int64_t dim : *dims) {
    const std::size_t reduced = node.dimension(dim, node.rank(self));
    if (reduced == carried.dim) throw Mixes{"reduces it"};
    if (reduced < carried.dim) ++before;
  }
  if (!node.flag("keepdim", false)) carried.dim -= before;
  carried.counts = false;
  return all_results(node, carried);
}

/// Works along one dimension, or several, and leaves the others apart.
std::vector<Flow> rule_along(const NodeView& node) {
  node.require_no_size();
  std::optional<Carried> found;
  const std::vector<ValueId> tensors = node.tensors();
  for (const ValueId value : tensors) {
    if (!node.flow(value).is_carried()) throw Mixes{"combines it with a tensor that does not have it"};
    const Carried& carried = node.flow(value).carried;
    if (found && (carried.dim != found->dim || carried.fold != found->fold))
      throw Mixes{"combines it with itself at another dimension"};
    found = carried;
  }
  if (!found) throw Mixes{"computes with the size itself"};
  auto dims = node.integers("dim");
  if (!dims) dims = node.integers("dims");
  if (!dims) dims = node.integers("dimension");
  const std::string op = node.node().op_name();
  if (!dims && (op == "aten::roll" || op == "aten::flip")) throw Mixes{"moves all elements"};
  for (const std::int64_t dim : dims.value_or(std::vector<std::int64_t>{-1})) {
    if (node.dimension(dim, node.rank(tensors.front())) == found->dim) throw Mixes{"works along it"};
  }
  found->counts = false;
  return all_results(node, *found);
}

std::vector<Flow> rule_gather(const NodeView& node) {
  node.require_no_size();
  const ValueId self = node.required("self"), index = node.required("index");
  const bool is_select = node.node().op_name() == "aten::index_select";
  const std::size_t dim = node.dimension(node.integer("dim", 0), node.rank(self));
  if (!node.flow(self).is_carried()) {  // each index of the batch looks up what it names
    Carried carried = node.flow(index).carried;
    if (is_select) carried.dim = dim;
    carried.counts = false;
    return all_results(node, carried);
  }
  Carried carried = node.flow(self).carried;
  if (carried.dim == dim) throw Mixes{"picks from it"};
  const Flow& picks = node.flow(index);
  const bool same =
      picks.is_carried() && picks.carried.dim == carried.dim && picks.carried.fold == carried.fold;
  if (is_select ? picks.is_carried() : !same)
    throw Mixes{"picks at indices that belong to other places of it"};
  carried.counts = false;
  return all_results(node, carried);
}

std::vector<Flow> rule_triangle(const NodeView& node) {
  node.require_no_size();
  const ValueId self = node.first_tensor();
  Carried carried = node.flow(self).carried;
  if (carried.dim + 2 >= node.rank(self)) throw Mixes{"cuts a triangle across it"};
  carried.counts = false;
  return all_results(node, carried);
}

std::vector<Flow> rule_assertion(const NodeView& node) {
  return std::vector<Flow>(node.node().produced().size());
}

std::vector<Flow> rule_size(const NodeView& node) {
  const ValueId self = node.required("self");
  const bool of_one = node.is_given("dim") && plain_name(node.node().op_name()) == "sym_size";
  if (of_one && node.rank(self) == 0) throw Mixes{"names a dimension that its argument does not have"};
  const std::size_t dim = of_one ? node.dimension(node.integer("dim", 0), node.rank(self)) : 0;
  const bool sized = !of_one || node.sizes().contains_batch(node.meta(self).sizes[dim]);
  return std::vector<Flow>(node.node().produced().size(), {sized ? Flow::Kind::sized : Flow::Kind::free});
}

}  // namespace lowtide::graph
