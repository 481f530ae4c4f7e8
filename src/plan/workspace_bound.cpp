#include "plan/workspace_bound.hpp"

#include <algorithm>
#include <unordered_set>

#include "base/checked_math.hpp"
#include "plan/residency_problem.hpp"

namespace lowtide::plan {
namespace {

using graph::ShapeView;

/// Small buffers every operator may take: index tables, reduction partials per thread, scalars.
constexpr Bytes kSmallBuffers = 16 * 1024;

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

bool is_convolution(std::string_view op) {
  return op.find("conv") != std::string_view::npos && op.find("aten::") == 0;
}

bool is_matrix_product(std::string_view op) {
  static const std::unordered_set<std::string_view> kOps{"aten::linear", "aten::addmm",  "aten::mm",
                                                         "aten::bmm",    "aten::matmul", "aten::addbmm",
                                                         "aten::baddbmm"};
  return kOps.count(op) > 0;
}

/// Reorders of input, weight and result into blocked layouts, or the column matrix of the direct method.
Bytes convolution(std::span<const Operand> inputs, std::span<const ShapeView> outputs) {
  if (inputs.size() < 2 || outputs.empty()) return 0;
  const ShapeView& weight = inputs[1].shape;
  Bytes weight_blocked = blocked_bytes(weight, 0);
  if (weight.sizes.size() > 1 && weight.sizes[1] > 0)
    weight_blocked = weight_blocked / static_cast<Bytes>(weight.sizes[1]) *
                     static_cast<Bytes>((weight.sizes[1] + 15) / 16 * 16);
  return blocked_bytes(inputs[0].shape, 1) + 2 * rounded(weight_blocked) + blocked_bytes(outputs[0], 1);
}

Bytes attention(std::span<const Operand> inputs, std::span<const ShapeView> outputs) {
  if (inputs.size() < 2 || inputs[0].shape.sizes.size() < 2 || inputs[1].shape.sizes.size() < 2)
    return sum(outputs);
  const ShapeView& query = inputs[0].shape;
  const ShapeView& key = inputs[1].shape;
  const auto scores = static_cast<Bytes>(query.numel() / std::max<std::int64_t>(query.sizes.back(), 1)) *
                      static_cast<Bytes>(key.sizes[key.sizes.size() - 2]) * sizeof(float);
  Bytes operands = 0;
  for (const Operand& input : inputs) operands += rounded(input.shape.bytes());
  return 2 * operands + 2 * rounded(scores) + sum(outputs);
}

/// Copies of arguments in another type or layout, and one result-sized intermediate.
Bytes general(std::span<const Operand> inputs, std::span<const ShapeView> outputs) {
  Bytes total = 2 * sum(outputs);
  for (const Operand& input : inputs) total += rounded(input.shape.bytes());
  return total;
}

}  // namespace

Bytes workspace_bound(std::string_view op_name, std::span<const Operand> inputs,
                      std::span<const ShapeView> outputs, bool view) {
  if (view) return 0;
  if (op_name == "aten::embedding") return kSmallBuffers;
  if (is_convolution(op_name)) return kSmallBuffers + convolution(inputs, outputs);
  if (op_name.find("scaled_dot_product") != std::string_view::npos)
    return kSmallBuffers + attention(inputs, outputs);
  if (is_matrix_product(op_name)) {
    Bytes copies = sum(outputs);
    for (const Operand& input : inputs) {
      if (!input.weight) copies += rounded(input.shape.bytes());
    }
    return kSmallBuffers + copies;
  }
  return kSmallBuffers + general(inputs, outputs);
}

}  // namespace lowtide::plan
