#include "session/describe_inputs.hpp"

#include <ATen/ops/view_as_complex.h>

#include "base_torch/dtype_convert.hpp"
#include "lowtide/error.hpp"

namespace lowtide::detail {
namespace {

std::string input_name(const ModelData& model, std::size_t i) {
  const auto& names = model.program().user_input_names;
  return i < names.size() ? names[i] : std::to_string(i);
}

/// A constant input may be left out; given, it must be what was fixed at export.
void check_constant(const graph::ConstantInput& constant, const at::Tensor& given, const std::string& name) {
  if (!given.defined()) return;
  const auto refuse = [&](const std::string& expected) {
    throw InputError("input '" + name + "' was fixed to " + expected +
                     " when the model was exported: pass that value or leave the input out");
  };
  if (std::holds_alternative<graph::None>(constant)) refuse("None");
  if (given.dim() != 0) refuse("a single value");
  if (const auto* i = std::get_if<std::int64_t>(&constant); i && given.item().toLong() != *i)
    refuse(std::to_string(*i));
  if (const auto* d = std::get_if<double>(&constant); d && given.item().toDouble() != *d)
    refuse(std::to_string(*d));
  if (const auto* b = std::get_if<bool>(&constant); b && given.item().toBool() != *b)
    refuse(*b ? "true" : "false");
  if (std::holds_alternative<std::string>(constant)) refuse("a text");
}

bool is_complex(graph::DType dtype) {
  return dtype == graph::DType::c32 || dtype == graph::DType::c64 || dtype == graph::DType::c128;
}

}  // namespace

std::vector<at::Tensor> complete_inputs(const ModelData& model, const std::vector<at::Tensor>& given) {
  const graph::Graph& graph = model.program().graph;
  if (given.size() > model.user_inputs().size())
    throw InputError("the model takes " + std::to_string(model.user_inputs().size()) + " inputs, but " +
                     std::to_string(given.size()) + " are given");
  std::vector<at::Tensor> inputs(given);
  inputs.resize(model.user_inputs().size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const graph::GraphInput& input = graph.inputs[model.user_inputs()[i]];
    if (input.kind == graph::InputKind::constant) {
      check_constant(input.constant, inputs[i], input_name(model, i));
      inputs[i] = at::Tensor();
      continue;
    }
    if (!inputs[i].defined() || input.value == graph::kNoValue) continue;
    if (!inputs[i].device().is_cpu())
      throw InputError("input '" + input_name(model, i) + "' must be in host memory: call .cpu() first");
    const graph::Value& value = graph.values[input.value];
    const bool pairs = inputs[i].is_floating_point() && inputs[i].dim() > 0 && inputs[i].size(-1) == 2;
    if (value.kind == graph::ValueKind::tensor && is_complex(value.meta.dtype) && pairs)
      inputs[i] = at::view_as_complex(inputs[i].contiguous());
  }
  return inputs;
}

graph::InputDescriptions describe_inputs(const ModelData& model, const std::vector<at::Tensor>& inputs) {
  const graph::Graph& graph = model.program().graph;
  graph::InputDescriptions described(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) continue;
    const graph::GraphInput& input = graph.inputs[model.user_inputs()[i]];
    graph::InputDescription description{.dtype = from_scalar_type(inputs[i].scalar_type()),
                                        .sizes = inputs[i].sizes().vec()};
    const bool symbolic =
        input.value != graph::kNoValue && graph.values[input.value].kind == graph::ValueKind::sym_int;
    if (symbolic && inputs[i].dim() == 0) description.integer = inputs[i].item().toLong();
    described[i] = std::move(description);
  }
  return described;
}

}  // namespace lowtide::detail
