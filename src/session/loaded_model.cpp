#include "session/loaded_model.hpp"

#include <ATen/ops/empty_strided.h>
#include <ATen/ops/scalar_tensor.h>

#include "base_torch/dtype_convert.hpp"
#include "lowtide/error.hpp"

namespace lowtide::detail {
namespace {

/// An integer, float or bool that the graph takes as a symbol, from its 0-d tensor.
c10::IValue symbolic_input(graph::ValueKind kind, const at::Tensor& tensor, const std::string& name) {
  if (tensor.dim() != 0) throw InputError("input '" + name + "' is a number: pass a 0-d tensor");
  if (kind == graph::ValueKind::sym_float) return tensor.item().toDouble();
  if (kind == graph::ValueKind::sym_bool) return tensor.item().toBool();
  return tensor.item().toLong();
}

/// Number results as 0-d tensors: int64, float64, bool.
at::Tensor number_output(const c10::IValue& v) {
  if (v.isBool()) return at::scalar_tensor(v.toBool(), at::kBool);
  if (v.isDouble()) return at::scalar_tensor(v.toDouble(), at::kDouble);
  return at::scalar_tensor(v.toInt(), at::kLong);
}

}  // namespace

LoadedModel::LoadedModel(std::shared_ptr<const ModelData> data, const device::Device& device)
    : data_(std::move(data)),
      device_(device),
      executor_(std::make_shared<const exec::BoundProgram>(data_->shared_program(), device.torch())) {
  values_of_weight_.resize(data_->weights().weights.size());
  const graph::Graph& graph = data_->program().graph;
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
    const std::uint32_t weight = data_->weight_of_input()[i];
    if (weight != UINT32_MAX) values_of_weight_[weight].push_back(graph.inputs[i].value);
  }
  if (device_.in_place()) {
    mapped_ = std::make_unique<MappedWeights>(*data_);
    place_cpu_weights();
  } else {
    store_ = std::make_unique<residency::HostStore>(data_->path(), data_->weights(), data_->packing(),
                                                    *device_.extras());
  }
}

void LoadedModel::place_cpu_weights() {
  for (std::uint32_t w = 0; w < values_of_weight_.size(); ++w) {
    for (const graph::ValueId value : values_of_weight_[w]) executor_.set_weight(value, mapped_->tensor(w));
  }
}

void LoadedModel::place_empty_weights() {
  for (std::uint32_t w = 0; w < values_of_weight_.size(); ++w) {
    const graph::Weight& weight = data_->weights().weights[w];
    if (data_->weights().files[weight.file].bytes > 0) continue;
    const auto options = at::TensorOptions().dtype(to_scalar_type(weight.meta.dtype)).device(device_.torch());
    for (const graph::ValueId value : values_of_weight_[w])
      executor_.set_weight(value, at::empty_strided(weight.meta.sizes, weight.meta.strides, options));
  }
}

void LoadedModel::use_plan(const plan::ResidencyPlan& plan) {
  forget_device();
  const residency::ResidencyInputs inputs{
      .store = store_.get(), .packing = &data_->packing(), .plan = &plan, .weights = &data_->weights()};
  manager_ = std::make_unique<residency::ResidencyManager>(
      device_, inputs, [this](std::uint32_t weight, const at::Tensor& tensor) {
        for (const graph::ValueId value : values_of_weight_[weight]) executor_.set_weight(value, tensor);
      });
}

void LoadedModel::forget_device() {
  if (device_.in_place()) return;
  executor_.drop_weights();
  if (manager_) manager_->forget_residents();
}

void LoadedModel::set_inputs(const std::vector<at::Tensor>& inputs) {
  const graph::Graph& graph = data_->program().graph;
  for (std::size_t i = 0; i < data_->user_inputs().size(); ++i) {
    const graph::GraphInput& input = graph.inputs[data_->user_inputs()[i]];
    if (input.kind != graph::InputKind::user || input.value == graph::kNoValue) continue;
    if (!executor_.program().is_used(input.value)) continue;
    const graph::Value& value = graph.values[input.value];
    const at::Tensor& given = inputs[i];
    if (value.kind != graph::ValueKind::tensor) {
      executor_.set_input(input.value, symbolic_input(value.kind, given, value.name));
    } else if (!device_.in_place()) {
      executor_.set_input(input.value, given.to(device_.torch()));
      device_.extras()->note_copy(/*to_device=*/true, given.nbytes());
    } else {  // the caller's tensor is never written
      executor_.set_input(input.value, data_->writes_input(input.value) ? given.clone() : given);
    }
  }
}

void LoadedModel::run(const at::Tensor& slab, const std::atomic<bool>& cancel) {
  exec::RunHooks hooks{.cancel = &cancel};
  if (device_.in_place()) {
    mapped_->begin_job();
  } else {
    place_empty_weights();
    manager_->begin_job(slab);
    hooks.residency = manager_.get();
  }
  executor_.run(hooks);
}

at::Tensor LoadedModel::output(const graph::GraphOutput& output) const {
  if (const auto* ref = std::get_if<graph::Ref>(&output.value)) {
    const c10::IValue& value = executor_.value(ref->value);
    if (value.isNone()) return {};
    if (!value.isTensor()) return number_output(value);
    const at::Tensor& tensor = value.toTensor();
    if (!device_.in_place()) {
      device_.extras()->note_copy(/*to_device=*/false, tensor.nbytes());
      return tensor.to(at::kCPU).contiguous();
    }
    return data_->is_borrowed(ref->value) ? tensor.clone(at::MemoryFormat::Contiguous) : tensor.contiguous();
  }
  if (const auto* i = std::get_if<std::int64_t>(&output.value)) return number_output(*i);
  if (const auto* d = std::get_if<double>(&output.value)) return number_output(*d);
  if (const auto* b = std::get_if<bool>(&output.value)) return number_output(*b);
  return {};  // None; text results have no tensor form
}

std::vector<at::Tensor> LoadedModel::take_outputs() {
  std::vector<at::Tensor> results;
  for (const std::size_t index : data_->user_outputs())
    results.push_back(output(data_->program().graph.outputs[index]));
  executor_.clear();
  return results;
}

void LoadedModel::finish_job() {
  executor_.clear();
  if (manager_) manager_->end_job();
}

}  // namespace lowtide::detail
