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

/// One job and what it is padded to. Its inputs are lengthened only when it runs, so that few are at a time.
struct PaddedJob {
  std::size_t place = 0;  // among the jobs that were given
  std::vector<at::Tensor> inputs;
  graph::InputDescriptions longer;
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

/// Throws InputError for a job that cannot run.
PaddedJob prepare_job(const BucketLadders& buckets, std::size_t place, const std::vector<at::Tensor>& given) {
  const detail::ModelData& model = buckets.model();
  PaddedJob job{.place = place, .inputs = detail::complete_inputs(model, given)};
  const graph::InputDescriptions described = detail::describe_inputs(model, job.inputs);
  job.own = graph::bind_inputs(model.program(), described);
  job.padded = buckets.round_up(job.own);
  job.longer = buckets.resized(described, job.padded);
  graph::bind_inputs(model.program(), job.longer);  // checks
  for (std::size_t i = 0; i < described.size(); ++i) {
    if (described[i] != job.longer[i]) check_size(*job.longer[i], model.program().user_input_names.at(i));
  }
  return job;
}

std::vector<at::Tensor> padded_inputs(const BucketLadders& buckets, const PaddedJob& job) {
  const detail::ModelData& model = buckets.model();
  const graph::Graph& graph = model.program().graph;
  std::vector<at::Tensor> inputs = job.inputs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined() || inputs[i].sizes() == job.longer[i]->sizes) continue;
    const auto& recorded = graph.values[graph.inputs[model.user_inputs()[i]].value].meta.sizes;
    for (std::size_t d = 0; d < recorded.size(); ++d) {
      const std::int64_t size = job.longer[i]->sizes[d];
      if (size == inputs[i].size(static_cast<std::int64_t>(d))) continue;
      const BucketLadder& ladder = *buckets.ladder_of(recorded[d]);
      const auto found = ladder.pads.find(i);
      const double pad = found == ladder.pads.end() ? 0 : found->second;
      inputs[i] = lengthened(inputs[i], static_cast<std::int64_t>(d), size, ladder.declared ? &pad : nullptr);
    }
  }
  return inputs;
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
      // Where a size is declared, a number of it and of data stays, as results of such sizes do.
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
  std::vector<PaddedJob> ready;
  for (std::size_t i = 0; i < given.size(); ++i) {
    try {
      ready.push_back(prepare_job(buckets, i, given[i]));
    } catch (const InputError&) {
      outcomes[i].error = std::current_exception();
    }
  }
  if (capped()) {  // for all of them together: how many there are decides how large waves are
    for (const PaddedJob& job : ready) plan_shape(index, job.longer, ready.size());
  }
  for (std::size_t begin = 0; begin < ready.size();) {
    const std::size_t left = ready.size() - begin;
    const std::size_t most = capped() ? static_cast<std::size_t>(plan->models.at(index).wave()) : 1;
    const std::size_t size = ceil_div(left, ceil_div(left, most));  // as run_many would cut them
    std::vector<std::vector<at::Tensor>> inputs;
    for (std::size_t i = 0; i < size; ++i) inputs.push_back(padded_inputs(buckets, ready[begin + i]));
    std::vector<JobOutcome> ran = run_many(index, inputs);
    for (std::size_t i = 0; i < size; ++i) {
      const PaddedJob& job = ready[begin + i];
      if (!ran[i].error) cut_results(buckets, ran[i].outputs, job);
      outcomes[job.place] = std::move(ran[i]);
    }
    begin += size;
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
