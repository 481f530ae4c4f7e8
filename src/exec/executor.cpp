#include "exec/executor.hpp"

#include <c10/core/InferenceMode.h>
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
  frame_.resize(graph.values.size());
  is_weight_.assign(graph.values.size(), false);
  for (const graph::GraphInput& input : graph.inputs) {
    if (input.value != graph::kNoValue && input.kind != graph::InputKind::user)
      is_weight_[input.value] = true;
  }
}

void Executor::run(const RunHooks& hooks) {
  const c10::InferenceMode inference;
  const std::size_t steps = program_->calls().size();
  try {
    for (std::size_t step = 0; step < steps; ++step) {
      if (hooks.cancel != nullptr && hooks.cancel->load(std::memory_order_relaxed))
        throw Cancelled("interrupted");
      if (hooks.before_step) hooks.before_step(step);
      {
        residency::Lease lease;
        if (hooks.residency != nullptr) lease = hooks.residency->acquire(static_cast<plan::StepId>(step));
        call(step);
      }
      if (hooks.after_step) hooks.after_step(step);
      for (const graph::ValueId value : program_->calls()[step].frees) frame_[value] = c10::IValue();
    }
  } catch (...) {
    clear();
    throw;
  }
}

void Executor::call(std::size_t step) {
  const BoundCall& bound = program_->calls()[step];
  try {
    stack_.clear();
    if (bound.symbolic) {
      call_symbolic(bound);
    } else if (bound.op) {
      for (const BoundArgument& argument : bound.arguments) push(argument);
      bound.op->callBoxed(stack_);
      store_results(bound);
    }
  } catch (const c10::OutOfMemoryError& e) {
    const std::string reason = first_line(e.what_without_backtrace());
    stack_.clear();
    throw OutOfBudget("the device refused memory in " + describe_arguments(step) + ": " + reason, 0, 0);
  } catch (const c10::AcceleratorError& e) {
    stack_.clear();
    throw DeviceError("the device failed in " + describe_arguments(step) + ": " +
                      first_line(e.what_without_backtrace()));
  } catch (const c10::Error& e) {
    fail(step, first_line(e.what_without_backtrace()));
  } catch (const std::exception& e) {
    fail(step, first_line(e.what()));
  }
}

void Executor::push(const BoundArgument& argument) {
  switch (argument.kind) {
    case Kind::constant:
      stack_.push_back(argument.constant);
      return;
    case Kind::value: {
      const c10::IValue& v = frame_[argument.value];
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
        list.push_back(item.value == graph::kNoValue ? at::Tensor() : frame_[item.value].toTensor());
      stack_.emplace_back(std::move(list));
      return;
    }
    case Kind::optional_tensor_list: {
      c10::List<std::optional<at::Tensor>> list;
      list.reserve(argument.items.size());
      for (const auto& item : argument.items)
        list.push_back(item.value == graph::kNoValue ? std::nullopt
                                                     : std::optional(frame_[item.value].toTensor()));
      stack_.emplace_back(std::move(list));
      return;
    }
    case Kind::int_list: {
      c10::List<std::int64_t> list;
      list.reserve(argument.items.size());
      for (const auto& item : argument.items)
        list.push_back(item.value == graph::kNoValue ? item.integer : frame_[item.value].toInt());
      stack_.emplace_back(std::move(list));
      return;
    }
    case Kind::double_list: {
      c10::List<double> list;
      for (const auto& item : argument.items)
        list.push_back(item.value == graph::kNoValue ? item.number : to_double(frame_[item.value]));
      stack_.emplace_back(std::move(list));
      return;
    }
    case Kind::bool_list: {
      c10::List<bool> list;
      for (const auto& item : argument.items)
        list.push_back(item.value == graph::kNoValue ? item.integer != 0 : frame_[item.value].toBool());
      stack_.emplace_back(std::move(list));
      return;
    }
  }
}

void Executor::call_symbolic(const BoundCall& bound) {
  for (const BoundArgument& argument : bound.arguments) push(argument);
  c10::IValue result = evaluate_symbolic(*bound.symbolic, stack_);
  if (!bound.results.empty()) frame_[bound.results.front()] = std::move(result);
  stack_.clear();
}

void Executor::store_results(const BoundCall& bound) {
  if (bound.list_result) {
    const c10::IValue list = std::move(stack_.front());
    const c10::ArrayRef<c10::IValue> items = list.toListRef();
    if (items.size() != bound.results.size())
      throw Error("gave " + std::to_string(items.size()) + " results where the export had " +
                  std::to_string(bound.results.size()));
    for (std::size_t i = 0; i < items.size(); ++i) frame_[bound.results[i]] = items[i];
  } else {
    for (std::size_t i = 0; i < bound.results.size(); ++i) {
      if (bound.results[i] != graph::kNoValue) frame_[bound.results[i]] = std::move(stack_[i]);
    }
  }
  stack_.clear();
}

void Executor::clear() {
  stack_.clear();
  for (graph::ValueId value = 0; value < frame_.size(); ++value) {
    if (!is_weight_[value]) frame_[value] = c10::IValue();
  }
}

void Executor::drop_weights() {
  for (graph::ValueId value = 0; value < frame_.size(); ++value) {
    if (is_weight_[value]) frame_[value] = c10::IValue();
  }
}

std::string Executor::describe_arguments(std::size_t step) const {
  const graph::Program& program = program_->program();
  const graph::Node& node = program.graph.nodes[step];
  std::string text = "node '" + node.name + "' (" + graph::print_node(program, program.graph, node) + ")";
  std::string shapes;
  for (const graph::ValueId value : node.read_values()) {
    if (!frame_[value].isTensor() || !frame_[value].toTensor().defined()) continue;
    const at::Tensor& tensor = frame_[value].toTensor();
    shapes += (shapes.empty() ? "" : ", ") + program.graph.values[value].name + " " +
              c10::str(tensor.sizes(), " ", tensor.scalar_type());
  }
  return shapes.empty() ? text : text + " with " + shapes;
}

void Executor::fail(std::size_t step, const std::string& reason) const {
  throw OperatorError("failed in " + describe_arguments(step) + ": " + reason);
}

}  // namespace lowtide::exec
