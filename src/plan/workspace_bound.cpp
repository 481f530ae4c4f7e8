#include "plan/workspace_bound.hpp"

#include <algorithm>
#include <array>
#include <unordered_set>

#include "base/checked_math.hpp"
#include "plan/residency_problem.hpp"

namespace lowtide::plan {
namespace {

using graph::ShapeView;

/// Small buffers every operator may take: index tables, reduction partials per thread, scalars.
constexpr Bytes kSmallBuffers = 32 * 1024;

Bytes rounded(Bytes bytes) {
  return round_up(bytes, kGranule);
}

Bytes sum(std::span<const ShapeView> shapes) {
  Bytes total = 0;
  for (const ShapeView& shape : shapes) total += rounded(shape.bytes());
  return total;
}

/// Bytes with the channel dimension padded to the blocks of vectorised convolutions.
Bytes blocked_bytes(const ShapeView& shape, std::size_t channel_dim) {
  constexpr std::int64_t kBlock = 16;
  if (shape.sizes.size() <= channel_dim) return rounded(shape.bytes());
  const std::int64_t channels = std::max<std::int64_t>(shape.sizes[channel_dim], 1);
  const auto padded = static_cast<Bytes>((channels + kBlock - 1) / kBlock * kBlock);
  return rounded(shape.bytes() / static_cast<Bytes>(channels) * padded);
}

using OpSet = std::unordered_set<std::string_view>;

/// Walk their operands element by element: a temporary only where an operand has another type than the
/// result.
const OpSet kPointwise{
    "add",         "sub",         "rsub",        "mul",        "div",           "relu",       "gelu",
    "silu",        "sigmoid",     "tanh",        "clamp",      "clamp_min",     "clamp_max",  "erf",
    "exp",         "log",         "sqrt",        "rsqrt",      "reciprocal",    "pow",        "neg",
    "abs",         "sin",         "cos",         "floor",      "ceil",          "round",      "sign",
    "hardswish",   "hardsigmoid", "hardtanh",    "leaky_relu", "elu",           "eq",         "ne",
    "lt",          "le",          "gt",          "ge",         "logical_and",   "logical_or", "logical_not",
    "bitwise_and", "bitwise_or",  "bitwise_not", "maximum",    "minimum",       "clone",      "copy",
    "fill",        "zero",        "zeros_like",  "ones_like",  "full_like",     "empty_like", "zeros",
    "ones",        "full",        "empty",       "arange",     "scalar_tensor", "repeat",     "expand_copy"};

/// Want their operands contiguous and of one type, and otherwise take only statistics per row.
const OpSet kContiguousOperands{"softmax",     "_softmax",
                                "log_softmax", "layer_norm",
                                "cat",         "stack",
                                "concat",      "mean",
                                "sum",         "amax",
                                "amin",        "argmax",
                                "avg_pool2d",  "adaptive_avg_pool2d",
                                "pad",         "constant_pad_nd",
                                "gather",      "index_select",
                                "cumsum",      "flatten",
                                "reshape",     "contiguous",
                                "to",          "_to_copy",
                                "unsqueeze",   "tile",
                                "batch_norm"};

bool is_convolution(std::string_view op) {
  return op.find("conv") != std::string_view::npos;
}

bool is_matrix_product(std::string_view op) {
  static const OpSet kOps{"linear", "addmm", "mm", "bmm", "matmul", "addbmm", "baddbmm"};
  return kOps.count(op) > 0;
}

/// Operands in another type than the result are converted first.
Bytes conversions(std::span<const Operand> inputs, std::span<const ShapeView> outputs) {
  Bytes total = 0;
  for (const Operand& input : inputs) {
    const bool converts = std::any_of(outputs.begin(), outputs.end(),
                                      [&](const ShapeView& o) { return o.dtype != input.shape.dtype; });
    if (converts) total += rounded(static_cast<Bytes>(input.shape.numel()) * sizeof(double));
  }
  return total;
}

/// Statistics per row, partial results per thread.
Bytes row_statistics(std::span<const Operand> inputs) {
  Bytes rows = 0;
  for (const Operand& input : inputs) {
    if (!input.shape.sizes.empty() && input.shape.sizes.back() > 0)
      rows = std::max(rows, static_cast<Bytes>(input.shape.numel() / input.shape.sizes.back()));
  }
  return rounded(2 * rows * sizeof(float));
}

Bytes contiguous_copies(std::span<const Operand> inputs) {
  Bytes total = 0;
  for (const Operand& input : inputs) total += input.contiguous ? 0 : rounded(input.shape.bytes());
  return total;
}

/// Small inputs and other types than single precision are unfolded into columns and multiplied (ATen's
/// ConvParams::use_mkldnn says when).
Bytes plain_convolution(const ShapeView& input, const ShapeView& weight, const ShapeView& output) {
  constexpr std::int64_t kSmallInput = 20480;
  const bool small = !input.sizes.empty() && input.sizes[0] == 1 && input.numel() <= kSmallInput;
  if (!small && input.dtype == graph::DType::f32) return 0;
  if (output.sizes.size() < 2 || weight.sizes.empty() || weight.sizes[0] <= 0 || output.sizes[1] <= 0)
    return 0;
  const std::int64_t column = weight.numel() / weight.sizes[0];
  const std::int64_t columns = output.numel() / output.sizes[1];
  return rounded(ShapeView{input.dtype, std::array{column, columns}}.bytes());
}

/// Reorders of input, weight and result into blocked layouts. Transposed ones also build the columns of input
/// and result.
Bytes convolution(std::span<const Operand> inputs, std::span<const ShapeView> outputs, bool transposed) {
  if (inputs.size() < 2 || outputs.empty()) return 0;
  const ShapeView& weight = inputs[1].shape;
  Bytes weight_blocked = blocked_bytes(weight, 0);
  // Few input channels keep the plain layout; more are padded to a block.
  constexpr std::int64_t kPlainChannels = 3;
  if (weight.sizes.size() > 1 && weight.sizes[1] > kPlainChannels)
    weight_blocked = weight_blocked / static_cast<Bytes>(weight.sizes[1]) *
                     static_cast<Bytes>((weight.sizes[1] + 15) / 16 * 16);
  const Bytes activations = blocked_bytes(inputs[0].shape, 1) + blocked_bytes(outputs[0], 1);
  const Bytes reorders = (transposed ? 2 : 1) * activations + 2 * rounded(weight_blocked);
  return std::max(reorders, plain_convolution(inputs[0].shape, weight, outputs[0]));
}

/// Blocked attention keeps a tile of scores per thread and one number per row; where its conditions do not
/// hold (other ranks, unequal head sizes) the scores are built whole.
Bytes attention(std::span<const Operand> inputs, std::span<const ShapeView> outputs, int threads) {
  if (inputs.size() < 3 || inputs[0].shape.sizes.size() < 2 || inputs[1].shape.sizes.size() < 2)
    return 4 * sum(outputs);
  const ShapeView& query = inputs[0].shape;
  const ShapeView& key = inputs[1].shape;
  const ShapeView& value = inputs[2].shape;
  const auto rows = static_cast<Bytes>(query.numel() / std::max<std::int64_t>(query.sizes.back(), 1));
  Bytes operands = 0;
  for (const Operand& input : inputs)
    operands += rounded(static_cast<Bytes>(input.shape.numel()) * sizeof(float));
  const bool blocked = query.sizes.size() == 4 && key.sizes.size() == 4 &&
                       query.sizes.back() == value.sizes.back() && query.sizes[1] == key.sizes[1];
  if (blocked) {
    constexpr Bytes kTileRows = 256;  // rows of queries and columns of keys in one tile, at most
    constexpr Bytes kTileColumns = 512;
    const Bytes tile_rows = std::min<Bytes>(kTileRows, static_cast<Bytes>(query.sizes[2]));
    const Bytes tile_columns = std::min<Bytes>(kTileColumns, static_cast<Bytes>(key.sizes[2]));
    const Bytes tile =
        tile_rows * (2 * tile_columns + 2 + static_cast<Bytes>(query.sizes.back())) * sizeof(float);
    Bytes masks = 0;
    for (std::size_t i = 3; i < inputs.size(); ++i)
      masks += rounded(static_cast<Bytes>(inputs[i].shape.numel()) * sizeof(float));
    return rounded(static_cast<Bytes>(threads) * tile) + rounded(rows * sizeof(float)) + masks +
           contiguous_copies(inputs) + sum(outputs);
  }
  const Bytes scores = rows * static_cast<Bytes>(key.sizes[key.sizes.size() - 2]) * sizeof(float);
  return 2 * operands + 2 * rounded(scores) + sum(outputs);
}

/// Flattening to two dimensions copies what is not contiguous; half precision is reordered.
Bytes matrix_product(std::string_view op, std::span<const Operand> inputs,
                     std::span<const ShapeView> outputs) {
  Bytes copies = 0;
  for (const Operand& input : inputs) {
    const bool as_is = input.contiguous && input.shape.dtype == graph::DType::f32 && op == "linear";
    if (!as_is && !(input.weight && input.shape.dtype == graph::DType::f32))
      copies += rounded(input.shape.bytes());
  }
  return copies == 0 ? 0 : copies + sum(outputs);
}

/// Bytes if the elements were at least single precision: half-precision operators often compute in it.
Bytes widened(const ShapeView& shape) {
  return rounded(std::max<Bytes>(shape.bytes(), static_cast<Bytes>(shape.numel()) * sizeof(float)));
}

/// Copies of arguments in another type or layout, and two result-sized intermediates.
Bytes general(std::span<const Operand> inputs, std::span<const ShapeView> outputs) {
  Bytes total = 0;
  for (const ShapeView& output : outputs) total += 2 * widened(output);
  for (const Operand& input : inputs) total += widened(input.shape);
  return total;
}

/// "aten::add_" -> "add": an in-place operator works like its plain form.
std::string_view plain_name(std::string_view op) {
  if (op.substr(0, 6) == "aten::") op.remove_prefix(6);
  if (op.size() > 1 && op.back() == '_' && op.substr(0, 2) != "__") op.remove_suffix(1);
  return op;
}

}  // namespace

Bytes workspace_bound(std::string_view op_name, std::span<const Operand> inputs,
                      std::span<const ShapeView> outputs, bool view, int threads) {
  if (view) return 0;
  const std::string_view op = plain_name(op_name);
  if (op == "embedding") return kSmallBuffers;
  if (kPointwise.count(op) > 0) return kSmallBuffers + conversions(inputs, outputs);
  if (kContiguousOperands.count(op) > 0)
    return kSmallBuffers + conversions(inputs, outputs) + contiguous_copies(inputs) + row_statistics(inputs);
  if (is_convolution(op))
    return kSmallBuffers + convolution(inputs, outputs, op.find("transpose") != std::string_view::npos);
  if (op.find("scaled_dot_product") != std::string_view::npos)
    return kSmallBuffers + attention(inputs, outputs, threads);
  if (is_matrix_product(op)) return kSmallBuffers + matrix_product(op, inputs, outputs);
  if (op == "max_pool2d" || op == "max_pool1d") {  // the indices of the maxima
    Bytes indices = 0;
    for (const ShapeView& output : outputs)
      indices += rounded(static_cast<Bytes>(output.numel()) * sizeof(std::int64_t));
    return kSmallBuffers + indices + contiguous_copies(inputs);
  }
  return kSmallBuffers + general(inputs, outputs);
}

}  // namespace lowtide::plan
