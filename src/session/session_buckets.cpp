// Jobs of models with buckets: their inputs are padded before they run, their results are cut back.
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include "base/checked_math.hpp"
#include "base/host_facts.hpp"
#include "graph/dtype.hpp"
#include "lowtide/error.hpp"
#include "session/describe_inputs.hpp"
#include "session/session_impl.hpp"

namespace lowtide {

using detail::BucketLadder;
using detail::BucketLadders;

namespace {

/// One job with longer inputs, and what it was before.
struct PaddedJob {
  std::vector<at::Tensor> inputs;
  graph::SymbolValues own;
  graph::SymbolValues padded;
};

/// Rows of a batch do not care what the others are, but operators check what they are given: indices must be
/// in range, assertions must hold, no NaN should appear where someone traps it. The last row is what the
/// model takes for certain. A batch of none has no row; zeros are valid indices.
at::Tensor lengthened(const at::Tensor& tensor, std::int64_t dim, std::int64_t size, const double* pad) {
  const std::int64_t before = tensor.size(dim);
  std::vector<std::int64_t> sizes = tensor.sizes().vec();
  sizes[static_cast<std::size_t>(dim)] = size - before;
  if (pad != nullptr || before == 0) {
    const double value = pad == nullptr ? 0 : *pad;
    return at::cat({tensor, at::full(sizes, value, tensor.options())}, dim);
  }
  return at::cat({tensor, tensor.narrow(dim, before - 1, 1).expand(sizes)}, dim);
}

/// A bucket may ask for more than the machine has; that is this job's error.
void check_size(const graph::InputDescription& input, const std::string& name) {
  Bytes bytes = graph::element_size(input.dtype);
  const Bytes available = available_ram_bytes().value_or(UINT64_MAX);
  for (const std::int64_t size : input.sizes) {
    const auto product = checked_mul(bytes, static_cast<Bytes>(size));
    bytes = product.value_or(UINT64_MAX);
    if (bytes == UINT64_MAX) break;
  }
  if (bytes > available)
    throw InputError("input '" + name + "' padded to its bucket takes " + format_bytes(bytes) +
                     ", more than this machine has left: give smaller buckets");
}

PaddedJob pad_job(const BucketLadders& buckets, const std::vector<at::Tensor>& given) {
  const detail::ModelData& model = buckets.model();
  PaddedJob job{.inputs = detail::complete_inputs(model, given), .own = {}, .padded = {}};
  const graph::InputDescriptions described = detail::describe_inputs(model, job.inputs);
  job.own = graph::bind_inputs(model.program(), described);
  job.padded = buckets.round_up(job.own);
  const graph::InputDescriptions longer = buckets.resized(described, job.padded);
  const graph::Graph& graph = model.program().graph;
  for (std::size_t i = 0; i < job.inputs.size(); ++i) {
    if (!job.inputs[i].defined() || described[i] == longer[i]) continue;
    check_size(*longer[i], model.program().user_input_names.at(i));
    const auto& recorded = graph.values[graph.inputs[model.user_inputs()[i]].value].meta.sizes;
    for (std::size_t d = 0; d < recorded.size(); ++d) {
      const std::int64_t size = longer[i]->sizes[d];
      if (size == job.inputs[i].size(static_cast<std::int64_t>(d))) continue;
      const BucketLadder& ladder = *buckets.ladder_of(recorded[d]);
      const auto found = ladder.pads.find(i);
      const double pad = found == ladder.pads.end() ? 0 : found->second;
      job.inputs[i] =
          lengthened(job.inputs[i], static_cast<std::int64_t>(d), size, ladder.declared ? &pad : nullptr);
    }
  }
  return job;
}

/// A result of the padded job as the job alone would have it.
at::Tensor cut_result(const BucketLadders& buckets, std::size_t output, const at::Tensor& result,
                      const PaddedJob& job) {
  at::Tensor cut = result;
  for (const BucketLadder& ladder : buckets.ladders()) {
    const std::int64_t padded = *job.padded.at(ladder.symbol), own = *job.own.at(ladder.symbol);
    if (padded == own) continue;
    for (const std::size_t d : ladder.cuts.at(output)) {
      const auto dim = static_cast<std::int64_t>(d);
      if (dim >= cut.dim() || cut.size(dim) % padded != 0)
        throw Error("internal: result " + std::to_string(output) +
                    " does not have the recorded shape, so that it cannot be cut back to its bucket's job");
      cut = cut.narrow(dim, 0, cut.size(dim) / padded * own);
    }
  }
  return cut.is_same(result) ? cut : cut.clone(at::MemoryFormat::Contiguous);
}

void cut_results(const BucketLadders& buckets, std::vector<at::Tensor>& results, const PaddedJob& job) {
  const detail::ModelData& model = buckets.model();
  const graph::Graph& graph = model.program().graph;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const auto* ref = std::get_if<graph::Ref>(&graph.outputs[model.user_outputs()[i]].value);
    if (ref == nullptr || !results[i].defined()) continue;
    const graph::Value& value = graph.values[ref->value];
    if (value.kind == graph::ValueKind::tensor) {
      results[i] = cut_result(buckets, i, results[i], job);
    } else if (value.kind == graph::ValueKind::sym_int && buckets.ladder_of(value.expr) != nullptr) {
      if (const auto number = value.expr.evaluate(job.own))
        results[i] = at::scalar_tensor(*number, at::kLong);
    }
  }
}

}  // namespace

graph::InputDescriptions Session::Impl::Entry::run_shapes(const InputShapes& shapes) const {
  const graph::InputDescriptions described = data->describe(shapes);
  return buckets ? buckets->padded(described) : described;
}

std::vector<JobOutcome> Session::Impl::run_padded(std::size_t index,
                                                  const std::vector<std::vector<at::Tensor>>& given) {
  if (!entries[index].buckets) return run_many(index, given);
  const BucketLadders& buckets = *entries[index].buckets;
  const c10::InferenceMode inference;
  last = {};
  std::vector<JobOutcome> outcomes(given.size());
  std::vector<PaddedJob> padded;
  std::vector<std::size_t> places;
  std::vector<std::vector<at::Tensor>> inputs;
  for (std::size_t i = 0; i < given.size(); ++i) {
    try {
      padded.push_back(pad_job(buckets, given[i]));
      inputs.push_back(std::move(padded.back().inputs));
      places.push_back(i);
    } catch (const InputError&) {
      outcomes[i].error = std::current_exception();
    }
  }
  if (padded.empty()) return outcomes;
  std::vector<JobOutcome> ran = run_many(index, inputs);
  for (std::size_t i = 0; i < ran.size(); ++i) {
    if (!ran[i].error) cut_results(buckets, ran[i].outputs, padded[i]);
    outcomes[places[i]] = std::move(ran[i]);
  }
  return outcomes;
}

namespace {

InputShapes shapes_of(const graph::InputDescriptions& inputs) {
  InputShapes shapes;
  for (const auto& input : inputs)
    shapes.push_back(input ? std::optional(InputShape{input->sizes, input->integer}) : std::nullopt);
  return shapes;
}

}  // namespace

InputShapes Session::padded_shapes(ModelHandle model, const InputShapes& shapes) const {
  const std::lock_guard lock(impl_->mutex);
  const Impl::Entry& entry = impl_->entries.at(model.index);
  const graph::InputDescriptions inputs = entry.run_shapes(shapes);
  graph::bind_inputs(entry.data->program(), inputs);  // checks
  return shapes_of(inputs);
}

std::vector<InputShapes> Session::bucket_shapes(ModelHandle model, const InputShapes& like) const {
  const std::lock_guard lock(impl_->mutex);
  const Impl::Entry& entry = impl_->entries.at(model.index);
  const graph::InputDescriptions inputs = entry.data->describe(like);
  graph::bind_inputs(entry.data->program(), inputs);  // checks
  std::vector<InputShapes> shapes;
  if (!entry.buckets) return {shapes_of(inputs)};
  for (const graph::InputDescriptions& shape : entry.buckets->all_shapes(inputs))
    shapes.push_back(shapes_of(shape));
  return shapes;
}

}  // namespace lowtide
