#include "exec/executor.hpp"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "exec/bind_arguments.hpp"
#include "graph/graph_text.hpp"
#include "lowtide/error.hpp"

namespace lowtide::exec {
namespace {

using Kind = BoundArgument::Kind;
using Convert = BoundArgument::Convert;

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

double to_double(const c10::IValue& v) {
  return v.isDouble() ? v.toDouble() : static_cast<double>(v.toInt());
}

}  // namespace

Executor::Executor(std::shared_ptr<const BoundProgram> program) : program_(std::move(program)) {
  const graph::Graph& graph = program_->program().graph;
  weights_.resize(graph.values.size());
  is_weight_.assign(graph.values.size(), false);
  for (const graph::GraphInput& input : graph.inputs) {
    if (input.value != graph::kNoValue && input.kind != graph::InputKind::user)
      is_weight_[input.value] = true;
  }
}

void Executor::look_up_on_host(graph::NodeId step, at::Tensor table, Upload upload) {
  lookups_[step] = {std::move(table), std::move(upload)};
}

void Executor::run_step(Frame& frame, std::size_t step) {
  guarded(frame, step, [&] { call(frame, step); });
  drop_dead(frame, step);
}

void Executor::run_chunk(Frame& frame, std::size_t step, const RowChunk& chunk) {
  guarded(frame, step, [&] { call_chunk(frame, program_->calls()[step], chunk); });
  if (chunk.end == chunk.rows) drop_dead(frame, step);
}

void Executor::drop_dead(Frame& frame, std::size_t step) {
  for (const graph::ValueId value : program_->calls()[step].frees) frame[value] = c10::IValue();
}

/// What the step throws, as ours.
template <class Body>
void Executor::guarded(const Frame& frame, std::size_t step, Body body) {
  try {
    stack_.clear();
    body();
  } catch (const c10::OutOfMemoryError& e) {
    const std::string reason = first_line(e.what_without_backtrace());
    stack_.clear();
    throw OutOfBudget("the device refused memory in " + describe(frame, step) + ": " + reason, 0, 0);
  } catch (const c10::AcceleratorError& e) {
    stack_.clear();
    throw DeviceError("the device failed in " + describe(frame, step) + ": " +
                      first_line(e.what_without_backtrace()));
  } catch (const c10::Error& e) {
    stack_.clear();
    throw OperatorError("failed in " + describe(frame, step) + ": " + first_line(e.what_without_backtrace()));
  } catch (const std::exception& e) {
    stack_.clear();
    throw OperatorError("failed in " + describe(frame, step) + ": " + first_line(e.what()));
  }
}

void Executor::call(Frame& frame, std::size_t step) {
  const BoundCall& bound = program_->calls()[step];
  if (bound.symbolic) {
    call_symbolic(frame, bound);
  } else if (const auto lookup = lookups_.find(step); lookup != lookups_.end()) {
    call_on_host(frame, bound, lookup->second);
  } else if (bound.op) {
    for (const BoundArgument& argument : bound.arguments) push(frame, argument);
    bound.op->callBoxed(stack_);
    store_results(frame, bound);
  }
}

/// aten::embedding(weight, indices, ...): the rows are gathered where the table is.
void Executor::call_on_host(Frame& frame, const BoundCall& bound, const HostLookup& lookup) {
  for (const BoundArgument& argument : bound.arguments) push(frame, argument);
  const at::Tensor on_host = frame.on_host(bound.arguments[1].value);
  stack_[0] = lookup.table;
  stack_[1] = on_host.defined() ? on_host : stack_[1].toTensor().to(at::kCPU);
  bound.op->callBoxed(stack_);
  stack_[0] = lookup.upload(stack_[0].toTensor());
  store_results(frame, bound);
}

/// aten::linear(input, weight, bias): columns [first, end) of the result.
void Executor::call_chunk(Frame& frame, const BoundCall& bound, const RowChunk& chunk) {
  for (const BoundArgument& argument : bound.arguments) push(frame, argument);
  const at::Tensor input = stack_[0].toTensor();
  const std::int64_t count = chunk.end - chunk.first;
  if (stack_.size() > 2 && stack_[2].isTensor() && stack_[2].toTensor().defined())
    stack_[2] = stack_[2].toTensor().narrow(0, chunk.first, count);
  c10::IValue& result = frame[bound.results.front()];
  if (chunk.first == 0) {
    std::vector<std::int64_t> sizes = input.sizes().vec();
    sizes.back() = chunk.rows;
    result = at::empty(sizes, input.options());
  }
  bound.op->callBoxed(stack_);
  result.toTensor().narrow(-1, chunk.first, count).copy_(stack_.front().toTensor());
  stack_.clear();
}

void Executor::push(const Frame& frame, const BoundArgument& argument) {
  switch (argument.kind) {
    case Kind::constant:
      stack_.push_back(argument.constant);
      return;
    case Kind::value: {
      const c10::IValue& v = value(frame, argument.value);
      if (argument.convert == Convert::none || v.isTensor() || v.isNone()) {
        stack_.push_back(v);
      } else if (argument.convert == Convert::to_double) {
        stack_.emplace_back(to_double(v));
      } else {
        stack_.emplace_back(number_tensor(v));
      }
      return;
    }
    case Kind::tensor_list: {
      c10::List<at::Tensor> list;
      list.reserve(argument.items.size());
      for (const auto& item : argument.items)
        list.push_back(item.value == graph::kNoValue ? at::Tensor() : value(frame, item.value).toTensor());
      stack_.emplace_back(std::move(list));
      return;
    }
    case Kind::optional_tensor_list: {
      c10::List<std::optional<at::Tensor>> list;
      list.reserve(argument.items.size());
      for (const auto& item : argument.items)
        list.push_back(item.value == graph::kNoValue ? std::nullopt
                                                     : std::optional(value(frame, item.value).toTensor()));
      stack_.emplace_back(std::move(list));
      return;
    }
    case Kind::int_list: {
      c10::List<std::int64_t> list;
      list.reserve(argument.items.size());
      for (const auto& item : argument.items)
        list.push_back(item.value == graph::kNoValue ? item.integer : value(frame, item.value).toInt());
      stack_.emplace_back(std::move(list));
      return;
    }
    case Kind::double_list: {
      c10::List<double> list;
      for (const auto& item : argument.items)
        list.push_back(item.value == graph::kNoValue ? item.number : to_double(value(frame, item.value)));
      stack_.emplace_back(std::move(list));
      return;
    }
    case Kind::bool_list: {
      c10::List<bool> list;
      for (const auto& item : argument.items)
        list.push_back(item.value == graph::kNoValue ? item.integer != 0 : value(frame, item.value).toBool());
      stack_.emplace_back(std::move(list));
      return;
    }
  }
}

void Executor::call_symbolic(Frame& frame, const BoundCall& bound) {
  for (const BoundArgument& argument : bound.arguments) push(frame, argument);
  c10::IValue result = evaluate_symbolic(*bound.symbolic, stack_);
  if (!bound.results.empty()) frame[bound.results.front()] = std::move(result);
  stack_.clear();
}

void Executor::store_results(Frame& frame, const BoundCall& bound) {
  if (bound.list_result) {
    const c10::IValue list = std::move(stack_.front());
    const c10::ArrayRef<c10::IValue> items = list.toListRef();
    if (items.size() != bound.results.size())
      throw Error("gave " + std::to_string(items.size()) + " results where the export had " +
                  std::to_string(bound.results.size()));
    for (std::size_t i = 0; i < items.size(); ++i) frame[bound.results[i]] = items[i];
  } else {
    for (std::size_t i = 0; i < bound.results.size(); ++i) {
      if (bound.results[i] != graph::kNoValue) frame[bound.results[i]] = std::move(stack_[i]);
    }
  }
  stack_.clear();
}

void Executor::drop_weights() {
  for (c10::IValue& weight : weights_) weight = c10::IValue();
}

std::string Executor::describe(const Frame& frame, std::size_t step) const {
  const graph::Program& program = program_->program();
  const graph::Node& node = program.graph.nodes[step];
  std::string text = "node '" + node.name + "' (" + graph::print_node(program, program.graph, node) + ")";
  std::string shapes;
  for (const graph::ValueId id : node.read_values()) {
    const c10::IValue& read = value(frame, id);
    if (!read.isTensor() || !read.toTensor().defined()) continue;
    const at::Tensor& tensor = read.toTensor();
    shapes += (shapes.empty() ? "" : ", ") + program.graph.values[id].name + " " +
              c10::str(tensor.sizes(), " ", tensor.scalar_type());
  }
  return shapes.empty() ? text : text + " with " + shapes;
}

}  // namespace lowtide::exec
