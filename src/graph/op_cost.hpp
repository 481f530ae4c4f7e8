// What an operator costs, from shapes alone: floating-point operations and bytes touched. Used by the planner
// (before the run) and by the simulated card (during it), so that predicted and modelled time come from one
// formula.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "graph/dtype.hpp"

namespace lowtide::graph {

/// A tensor as the cost model sees it.
struct ShapeView {
  DType dtype = DType::unknown;
  std::span<const std::int64_t> sizes;
  std::int64_t numel() const;
  std::uint64_t bytes() const;
};

/// Which rate of a device an operator's arithmetic runs at.
enum class Precision : std::uint8_t { half, single, double_ };

struct OpCost {
  double flops = 0;  // multiply and add count as two
  double bytes = 0;  // read + written, each tensor once; 0 for views
  Precision precision = Precision::single;
  bool view = false;  // moves no data, costs only the launch
};

/// `op_name` without overload ("aten::linear"). `inputs` are the tensor arguments in schema order, lists
/// flattened, `outputs` the tensor results. `aliasing` says the schema returns views of its inputs without
/// writing. Never fails: unknown operators cost their bytes.
OpCost op_cost(std::string_view op_name, std::span<const ShapeView> inputs,
               std::span<const ShapeView> outputs, bool aliasing);

/// Does the host wait for the operator's result, because a size or a number depends on it?
bool synchronises(std::string_view op_name);

/// max(flops / rate, bytes / bandwidth) + kernel time; launch time is charged to the host separately.
struct ComputeRates {
  double fp32_flops = 12.7e12;
  double fp16_flops = 25.4e12;
  double fp64_flops = 0.2e12;  // 1/64 of fp32, as on consumer cards
  double memory_bytes_per_s = 360e9;
  double kernel_s = 2e-6;
};
double op_seconds(const OpCost& cost, const ComputeRates& rates);

}  // namespace lowtide::graph
