#include "graph/op_cost.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace lowtide::graph {
namespace {

using Shapes = std::span<const ShapeView>;

/// How an operator's work follows from its shapes.
enum class Family {
  other,             // bytes alone
  matrix_product,    // (a, b): a's last dimension is summed over
  biased_product,    // (bias, a, b)
  summed_batches,    // (bias, a, b), batches of a and b summed into one result
  linear,            // (x, weight): weight's last dimension is summed over
  convolution,       // (x, weight), plain or transposed: decided from the shapes
  transposed_conv,   // (x, weight[in, out / groups, ...])
  attention,         // (q, k, v) with rows and features last
  recurrent,         // (x, state..., weights...): every matrix is used once per row of x
  recurrent_cell_1,  // one state tensor before the weights
  recurrent_cell_2,  // two state tensors before the weights
  row_lookup,        // (table, indices): reads the chosen rows
  row_lookup_last,   // the same with the table's rows reduced into the result
  row_update,        // (target, indices, source) in place: touches the chosen rows
  reads_back,        // gives the host a number: reads its inputs
};

Family family_of(std::string_view name) {
  static const std::unordered_map<std::string_view, Family> kFamilies{
      {"mm", Family::matrix_product},
      {"bmm", Family::matrix_product},
      {"matmul", Family::matrix_product},
      {"mv", Family::matrix_product},
      {"dot", Family::matrix_product},
      {"vdot", Family::matrix_product},
      {"_scaled_mm", Family::matrix_product},
      {"_int_mm", Family::matrix_product},
      {"addmm", Family::biased_product},
      {"_addmm_activation", Family::biased_product},
      {"addmv", Family::biased_product},
      {"baddbmm", Family::biased_product},
      {"addbmm", Family::summed_batches},
      {"linear", Family::linear},
      {"mkldnn_linear", Family::linear},
      {"conv1d", Family::convolution},
      {"conv2d", Family::convolution},
      {"conv3d", Family::convolution},
      {"convolution", Family::convolution},
      {"_convolution", Family::convolution},
      {"_convolution_mode", Family::convolution},
      {"convolution_overrideable", Family::convolution},
      {"thnn_conv2d", Family::convolution},
      {"_slow_conv2d_forward", Family::convolution},
      {"slow_conv3d", Family::convolution},
      {"slow_conv3d_forward", Family::convolution},
      {"slow_conv_dilated2d", Family::convolution},
      {"slow_conv_dilated3d", Family::convolution},
      {"conv_depthwise3d", Family::convolution},
      {"_conv_depthwise2d", Family::convolution},
      {"mkldnn_convolution", Family::convolution},
      {"cudnn_convolution", Family::convolution},
      {"cudnn_convolution_relu", Family::convolution},
      {"conv_transpose1d", Family::transposed_conv},
      {"conv_transpose2d", Family::transposed_conv},
      {"conv_transpose3d", Family::transposed_conv},
      {"slow_conv_transpose2d", Family::transposed_conv},
      {"slow_conv_transpose3d", Family::transposed_conv},
      {"cudnn_convolution_transpose", Family::transposed_conv},
      {"lstm", Family::recurrent},
      {"gru", Family::recurrent},
      {"rnn_tanh", Family::recurrent},
      {"rnn_relu", Family::recurrent},
      {"mkldnn_rnn_layer", Family::recurrent},
      {"lstm_cell", Family::recurrent_cell_2},
      {"gru_cell", Family::recurrent_cell_1},
      {"rnn_tanh_cell", Family::recurrent_cell_1},
      {"rnn_relu_cell", Family::recurrent_cell_1},
      {"embedding", Family::row_lookup},
      {"index_select", Family::row_lookup},
      {"index", Family::row_lookup},
      {"_unsafe_index", Family::row_lookup},
      {"gather", Family::row_lookup},
      {"take", Family::row_lookup},
      {"take_along_dim", Family::row_lookup},
      {"embedding_bag", Family::row_lookup_last},
      {"_embedding_bag", Family::row_lookup_last},
      {"_embedding_bag_forward_only", Family::row_lookup_last},
      {"index_copy_", Family::row_update},
      {"index_add_", Family::row_update},
      {"index_put_", Family::row_update},
      {"_index_put_impl_", Family::row_update},
      {"scatter_", Family::row_update},
      {"scatter_add_", Family::row_update},
      {"scatter_reduce_", Family::row_update},
      {"item", Family::reads_back},
      {"_local_scalar_dense", Family::reads_back},
      {"equal", Family::reads_back},
      {"allclose", Family::reads_back},
      {"is_nonzero", Family::reads_back},
      {"_assert_async", Family::reads_back},
  };
  constexpr std::string_view kNamespace = "aten::";
  if (!name.starts_with(kNamespace)) return Family::other;
  name.remove_prefix(kNamespace.size());
  auto found = kFamilies.find(name);
  if (found == kFamilies.end() && name.ends_with('_')) {  // in place: the work is the same
    name.remove_suffix(1);
    found = kFamilies.find(name);
  }
  if (found != kFamilies.end()) return found->second;
  if (name.starts_with("scaled_dot_product_") || name.starts_with("_scaled_dot_product_")) {
    return name.ends_with("_backward") ? Family::other : Family::attention;
  }
  return Family::other;
}

/// Size of dimension `from_back` counted from the end (1 = last); 1 where the tensor has fewer dimensions.
double dim(const ShapeView& shape, std::size_t from_back) {
  return from_back <= shape.sizes.size() ? static_cast<double>(shape.sizes[shape.sizes.size() - from_back])
                                         : 1;
}

double numel(const ShapeView& shape) {
  return static_cast<double>(shape.numel());
}

double total_bytes(Shapes shapes) {
  double sum = 0;
  for (const ShapeView& shape : shapes) sum += static_cast<double>(shape.bytes());
  return sum;
}

/// Weight elements that meet one element of the result (plain) or of the input (transposed).
double taps(const ShapeView& weight) {
  const double channels = weight.sizes.empty() ? 1 : static_cast<double>(weight.sizes[0]);
  return channels == 0 ? 0 : numel(weight) / channels;
}

/// The general entry points carry the kind as a flag that shapes do not show. A plain convolution has
/// weight[0] = result channels, a transposed one weight[0] = input channels; where both hold, only the
/// transposed one enlarges the image.
bool looks_transposed(const ShapeView& input, const ShapeView& weight, const ShapeView& result) {
  const std::size_t spatial = weight.sizes.size() > 2 ? weight.sizes.size() - 2 : 0;
  if (spatial == 0 || input.sizes.size() <= spatial || result.sizes.size() <= spatial) return false;
  const auto channels = static_cast<double>(weight.sizes[0]);
  const bool plain = channels == dim(result, spatial + 1);
  const bool transposed = channels == dim(input, spatial + 1);
  if (plain != transposed) return transposed;
  double input_pixels = 1, result_pixels = 1;
  for (std::size_t d = 1; d <= spatial; ++d) input_pixels *= dim(input, d), result_pixels *= dim(result, d);
  return result_pixels > input_pixels;
}

/// Every matrix among `weights` meets every row of `x` once.
double recurrent_flops(const ShapeView& x, Shapes weights) {
  const double features = dim(x, 1);
  if (features == 0) return 0;
  double elements = 0;
  for (const ShapeView& weight : weights) {
    if (weight.sizes.size() == 2) elements += numel(weight);
  }
  return 2 * numel(x) / features * elements;
}

Shapes tail(Shapes shapes, std::size_t first) {
  return shapes.subspan(std::min(first, shapes.size()));
}

double flops_of(Family family, Shapes inputs, Shapes outputs) {
  if (inputs.size() < 2 || outputs.empty()) return 0;
  const double results = numel(outputs[0]);
  switch (family) {
    case Family::matrix_product:
      return 2 * results * dim(inputs[0], 1);
    case Family::linear:
      return 2 * results * dim(inputs[1], 1);
    case Family::biased_product:
      return 2 * results * dim(inputs[1], 1);
    case Family::summed_batches:
      return 2 * results * dim(inputs[1], 1) * dim(inputs[1], 3);
    case Family::convolution:
      return 2 * taps(inputs[1]) *
             (looks_transposed(inputs[0], inputs[1], outputs[0]) ? numel(inputs[0]) : results);
    case Family::transposed_conv:
      return 2 * numel(inputs[0]) * taps(inputs[1]);
    case Family::attention: {
      if (inputs.size() < 3 || dim(inputs[0], 1) == 0) return 0;
      const double rows = numel(inputs[0]) / dim(inputs[0], 1);
      return 2 * rows * dim(inputs[1], 2) * (dim(inputs[0], 1) + dim(inputs[2], 1));
    }
    case Family::recurrent:
      return recurrent_flops(inputs[0], tail(inputs, 1));
    case Family::recurrent_cell_1:
      return recurrent_flops(inputs[0], tail(inputs, 2));
    case Family::recurrent_cell_2:
      return recurrent_flops(inputs[0], tail(inputs, 3));
    default:
      return 0;
  }
}

double bytes_of(Family family, Shapes inputs, Shapes outputs) {
  if (!inputs.empty() && !outputs.empty()) {
    const double table = static_cast<double>(inputs[0].bytes());
    if (family == Family::row_lookup) {
      return std::min(table, static_cast<double>(outputs[0].bytes())) + total_bytes(tail(inputs, 1)) +
             total_bytes(outputs);
    }
    if (family == Family::row_lookup_last && inputs.size() > 1) {
      const double rows = numel(inputs[1]) * dim(inputs[0], 1) * element_size(inputs[0].dtype);
      return std::min(table, rows) + total_bytes(tail(inputs, 1)) + total_bytes(outputs);
    }
    if (family == Family::row_update) {
      double source = 0;
      for (const ShapeView& shape : tail(inputs, 1)) {
        if (shape.dtype == inputs[0].dtype) source = std::max(source, static_cast<double>(shape.bytes()));
      }
      return std::min(table, source) + total_bytes(tail(inputs, 1));
    }
  }
  return total_bytes(inputs) + total_bytes(outputs);
}

Precision precision_of(const ShapeView& shape) {
  if (shape.dtype == DType::f16 || shape.dtype == DType::bf16) return Precision::half;
  if (shape.dtype == DType::f64 || shape.dtype == DType::c128) return Precision::double_;
  return Precision::single;
}

/// Half rate only where results are of half precision, too: a product that accumulates into fp32 is not.
Precision precision_of(Shapes inputs, Shapes outputs) {
  if (inputs.empty()) return Precision::single;
  const Precision input = precision_of(inputs[0]);
  return outputs.empty() ? input : std::max(input, precision_of(outputs[0]));
}

double flops_per_s(Precision precision, const ComputeRates& rates) {
  switch (precision) {
    case Precision::half:
      return rates.fp16_flops;
    case Precision::double_:
      return rates.fp64_flops;
    case Precision::single:
      break;
  }
  return rates.fp32_flops;
}

}  // namespace

std::int64_t ShapeView::numel() const {
  std::int64_t product = 1;
  for (const std::int64_t size : sizes) product *= size;
  return product;
}

std::uint64_t ShapeView::bytes() const {
  return static_cast<std::uint64_t>(numel()) * element_size(dtype);
}

OpCost op_cost(std::string_view op_name, std::span<const ShapeView> inputs,
               std::span<const ShapeView> outputs, bool aliasing) {
  OpCost cost;
  if (aliasing) {
    cost.view = true;
    return cost;
  }
  const Family family = family_of(op_name);
  if (outputs.empty() && family != Family::reads_back) {  // asks about sizes, dtypes or devices: host work
    cost.view = true;
    return cost;
  }
  cost.flops = flops_of(family, inputs, outputs);
  cost.bytes = bytes_of(family, inputs, outputs);
  cost.precision = precision_of(inputs, outputs);
  return cost;
}

double op_seconds(const OpCost& cost, const ComputeRates& rates) {
  if (cost.view) return 0;
  return std::max(cost.flops / flops_per_s(cost.precision, rates), cost.bytes / rates.memory_bytes_per_s) +
         rates.kernel_s;
}

bool synchronises(std::string_view op_name) {
  static const std::unordered_set<std::string_view> kNames{"aten::_local_scalar_dense",
                                                           "aten::item",
                                                           "aten::is_nonzero",
                                                           "aten::equal",
                                                           "aten::allclose",
                                                           "aten::nonzero",
                                                           "aten::nonzero_numpy",
                                                           "aten::argwhere",
                                                           "aten::masked_select",
                                                           "aten::_unique",
                                                           "aten::_unique2",
                                                           "aten::unique_dim",
                                                           "aten::unique_consecutive",
                                                           "aten::unique_dim_consecutive",
                                                           "aten::bincount"};
  return kNames.count(op_name) > 0;
}

}  // namespace lowtide::graph
