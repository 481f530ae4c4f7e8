#include "session/loaded_model.hpp"

#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/scalar_tensor.h>

#include "base_torch/dtype_convert.hpp"
#include "lowtide/error.hpp"
#include "memory/pin_budget.hpp"
#include "session/model_state.hpp"
#include "session/ram_plan.hpp"

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

LoadedModel::LoadedModel(std::shared_ptr<const ModelData> data, const device::Device& device,
                         residency::WeightPool& pool, std::optional<RamLoan> ram)
    : data_(std::move(data)),
      device_(device),
      executor_(std::make_shared<const exec::BoundProgram>(data_->shared_program(), device.torch())),
      tier_(ram ? ram->tier : nullptr) {
  values_of_weight_.resize(data_->weights().weights.size());
  const graph::Graph& graph = data_->program().graph;
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
    const std::uint32_t weight = data_->weight_of_input()[i];
    if (weight != UINT32_MAX) values_of_weight_[weight].push_back(graph.inputs[i].value);
  }
  if (device_.in_place() && !ram) {
    mapped_ = std::make_unique<MappedWeights>(*data_);
  } else {
    load_weights(pool, ram ? ram->part : nullptr);
  }
  if (device_.in_place()) {
    place_cpu_weights();
  } else {
    look_up_on_host();
  }
}

void LoadedModel::load_weights(residency::WeightPool& pool, const RamPart* part) {
  device::DeviceExtras* extras = device_.extras();
  residency::HostStoreOptions options;
  if (part != nullptr) {
    options.on_disk = part->on_disk;  // and nothing shared: what two models have in common is no one's share
  } else {
    options.pool = &pool;
  }
  if (extras != nullptr) {
    options.pin_budget = memory::pin_budget(*extras);
    staging_ = std::make_unique<memory::Staging>(*extras);
  }
  store_ = std::make_unique<residency::HostStore>(data_->file(), data_->weights(), data_->packing(),
                                                  data_->host_tables(), extras, options);
  if (tier_ != nullptr) tier_->bytes_read += store_->bytes_read();
}

void LoadedModel::look_up_on_host() {
  for (const HostLookup& lookup : data_->host_lookups()) {
    const graph::Weight& weight = data_->weights().weights[lookup.weight];
    const std::size_t offset =
        static_cast<std::size_t>(weight.meta.storage_offset) * graph::element_size(weight.meta.dtype);
    const at::Tensor table =
        at::from_blob(store_->storage(weight.file) + offset, weight.meta.sizes, weight.meta.strides,
                      at::TensorOptions().dtype(to_scalar_type(weight.meta.dtype)));
    executor_.look_up_on_host(lookup.step, table, [this](const at::Tensor& rows) {
      return residency::upload(rows, device_, *staging_);
    });
  }
}

/// Those that stay where they are: all of a mapping; under a cap on host memory the tables that are looked
/// up.
void LoadedModel::place_cpu_weights() {
  for (std::uint32_t w = 0; w < values_of_weight_.size(); ++w) {
    const graph::Weight& weight = data_->weights().weights[w];
    at::Tensor tensor;
    if (mapped_) {
      tensor = mapped_->tensor(w);
    } else if (std::byte* place = store_->storage(weight.file); place != nullptr) {
      const std::size_t offset =
          static_cast<std::size_t>(weight.meta.storage_offset) * graph::element_size(weight.meta.dtype);
      tensor = at::from_blob(place + offset, weight.meta.sizes, weight.meta.strides,
                             at::TensorOptions().dtype(to_scalar_type(weight.meta.dtype)));
    } else {
      continue;
    }
    for (const graph::ValueId value : values_of_weight_[w]) executor_.set_weight(value, tensor);
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

void LoadedModel::follow(const plan::Packing& packing, const plan::ResidencyPlan& residency) {
  forget_device();
  const residency::ResidencyInputs inputs{.store = store_.get(),
                                          .packing = &packing,
                                          .plan = &residency,
                                          .weights = &data_->weights(),
                                          .disk = tier_,
                                          .file = data_->file()};
  manager_ = std::make_unique<residency::ResidencyManager>(
      device_, inputs, [this](std::uint32_t weight, const at::Tensor& tensor) {
        for (const graph::ValueId value : values_of_weight_[weight]) executor_.set_weight(value, tensor);
      });
}

void LoadedModel::use_plan(const PlannedModel& plan) {
  follow(plan.variant->packing, plan.residency);
}

void LoadedModel::use_slots(const SlotPlan& plan) {
  cpu_slab_ = {};
  cpu_slab_bytes_ = plan.residency.slab_bytes;
  follow(*plan.packing, plan.residency);
}

void LoadedModel::forget_device() {
  if (mapped_) return;
  executor_.drop_weights();
  if (manager_) manager_->forget_residents();
  if (!device_.in_place()) return;
  cpu_slab_ = {};
  place_cpu_weights();
}

JobRun LoadedModel::make_job(std::vector<at::Tensor> inputs) const {
  JobRun job(executor_.make_frame());
  job.inputs = std::move(inputs);
  return job;
}

void LoadedModel::send_inputs(JobRun& job) {
  const graph::Graph& graph = data_->program().graph;
  for (std::size_t i = 0; i < data_->user_inputs().size(); ++i) {
    const graph::GraphInput& input = graph.inputs[data_->user_inputs()[i]];
    if (input.kind != graph::InputKind::user || input.value == graph::kNoValue) continue;
    if (!executor_.program().is_used(input.value)) continue;
    const graph::Value& value = graph.values[input.value];
    const at::Tensor& given = job.inputs[i];
    if (value.kind != graph::ValueKind::tensor) {
      job.frame[input.value] = symbolic_input(value.kind, given, value.name);
    } else if (!device_.in_place()) {
      job.frame[input.value] = residency::upload(given, device_, *staging_);
      if (!data_->writes_input(input.value)) job.frame.keep_on_host(input.value, given);
    } else {  // the caller's tensor is never written
      job.frame[input.value] = data_->writes_input(input.value) ? given.clone() : given;
    }
  }
  job.inputs_sent = true;
}

void LoadedModel::place_state(const ModelState& state) {
  state.place([this](std::uint32_t weight, const at::Tensor& tensor) {
    for (const graph::ValueId value : values_of_weight_[weight]) executor_.set_weight(value, tensor);
  });
}

void LoadedModel::drop_state() {
  for (const std::uint32_t file : data_->kept_state()) {
    for (std::uint32_t w = 0; w < values_of_weight_.size(); ++w) {
      if (data_->weights().weights[w].file != file) continue;
      for (const graph::ValueId value : values_of_weight_[w]) executor_.set_weight(value, at::Tensor());
    }
  }
}

void LoadedModel::run_in_place(JobRun& job, const ModelState* state, const std::atomic<bool>& cancel) {
  if (mapped_) {
    mapped_->begin_job();
  } else {
    if (cpu_slab_.data() == nullptr) cpu_slab_ = memory::HostSlab::pageable(cpu_slab_bytes_);
    place_empty_weights();
    manager_->begin_job(residency::byte_tensor(cpu_slab_.data(), cpu_slab_.bytes(), device_.torch()));
  }
  if (state != nullptr) place_state(*state);
  send_inputs(job);
  for (std::size_t step = 0; step < executor_.steps(); ++step) {
    if (cancel.load(std::memory_order_relaxed)) throw Cancelled("interrupted");
    residency::Lease lease;
    if (manager_) lease = manager_->acquire(static_cast<plan::StepId>(step));
    executor_.run_step(job.frame, step);
  }
  fetch_outputs(job);
}

JobOutput LoadedModel::output(const JobRun& job, const graph::GraphOutput& output) {
  if (const auto* ref = std::get_if<graph::Ref>(&output.value)) {
    const c10::IValue& value = executor_.value(job.frame, ref->value);
    if (value.isNone()) return at::Tensor();
    if (!value.isTensor()) return number_output(value);
    const at::Tensor& tensor = value.toTensor();
    if (!device_.in_place() && tensor.device() == device_.torch())
      return residency::Download(tensor, device_, *staging_);
    return data_->is_borrowed(ref->value) ? tensor.clone(at::MemoryFormat::Contiguous) : tensor.contiguous();
  }
  if (const auto* i = std::get_if<std::int64_t>(&output.value)) return number_output(*i);
  if (const auto* d = std::get_if<double>(&output.value)) return number_output(*d);
  if (const auto* b = std::get_if<bool>(&output.value)) return number_output(*b);
  return at::Tensor();  // None; text results have no tensor form
}

void LoadedModel::fetch_outputs(JobRun& job) {
  for (const std::size_t index : data_->user_outputs())
    job.outputs.push_back(output(job, data_->program().graph.outputs[index]));
  job.frame.clear();
}

void LoadedModel::finish_jobs() {
  if (manager_) manager_->end_job();
}

}  // namespace lowtide::detail
