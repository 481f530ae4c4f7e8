#include "exec/bound_program.hpp"

#include <algorithm>

#include "exec/bind_arguments.hpp"
#include "exec/operator_traits.hpp"
#include "lowtide/error.hpp"

namespace lowtide::exec {
namespace {

using graph::Node;
using graph::NodeOutput;
using graph::ValueId;

/// Operators that make a tensor from nothing put it on the run device even where the export left the device
/// out.
bool makes_tensor_from_nothing(const c10::FunctionSchema& schema) {
  return std::none_of(schema.arguments().begin(), schema.arguments().end(), [](const c10::Argument& a) {
    return a.type()->str().find("Tensor") != std::string::npos;
  });
}

bool is_device_argument(const c10::Argument& formal) {
  return formal.name() == "device" && formal.type()->str().find("Device") != std::string::npos;
}

void bind_results(const Node& node, const c10::FunctionSchema& schema, BoundCall& call) {
  if (node.outputs.size() > schema.returns().size())
    throw ArchiveError("names " + std::to_string(node.outputs.size()) + " results, but the operator has " +
                       std::to_string(schema.returns().size()));
  for (const NodeOutput& output : node.outputs) {
    if (const auto* list = std::get_if<std::vector<ValueId>>(&output)) {
      if (node.outputs.size() != 1) throw ArchiveError("mixes a list of results with others");
      call.list_result = true;
      call.results = *list;
    } else {
      const auto* value = std::get_if<ValueId>(&output);
      call.results.push_back(value ? *value : graph::kNoValue);
    }
  }
}

}  // namespace

BoundProgram::BoundProgram(std::shared_ptr<const graph::Program> program, c10::Device device)
    : program_(std::move(program)), device_(device) {
  calls_.reserve(program_->graph.nodes.size());
  for (const Node& node : program_->graph.nodes) {
    try {
      calls_.push_back(bind(node));
    } catch (const UnsupportedOp&) {
      throw;
    } catch (const Error& e) {
      throw ArchiveError("node '" + node.name + "' (" + node.target +
                         (node.source.empty() ? "" : ", " + node.source) + "): " + e.what());
    }
  }
  plan_frees();
}

BoundCall BoundProgram::bind(const Node& node) const {
  BoundCall call;
  if (is_skipped(node)) return call;
  call.symbolic = find_symbolic(node);
  if (call.symbolic) {
    for (const graph::Argument& argument : node.arguments)
      call.arguments.push_back(bind_symbolic_argument(argument));
    call.results = node.produced();
    return call;
  }
  call.op = c10::Dispatcher::singleton().findSchema({node.op_name(), node.overload()});
  if (!call.op) throw UnsupportedOp("operator '" + node.op_name() + "' is not registered");
  const c10::FunctionSchema& schema = call.op->schema();
  for (const graph::Argument& argument : node.arguments) {
    if (!schema.argumentIndexWithName(argument.name))
      throw ArchiveError("the operator has no argument '" + argument.name + "'");
  }
  const bool from_nothing = makes_tensor_from_nothing(schema);
  for (const c10::Argument& formal : schema.arguments()) {
    const graph::Argument* actual = node.find_argument(formal.name());
    BoundArgument bound = bind_argument(formal, actual, device_);
    if (from_nothing && is_device_argument(formal) && bound.kind == BoundArgument::Kind::constant &&
        bound.constant.isNone())
      bound.constant = device_;
    call.arguments.push_back(std::move(bound));
  }
  bind_results(node, schema, call);
  return call;
}

void BoundProgram::plan_frees() {
  const graph::Graph& graph = program_->graph;
  constexpr std::size_t kNever = SIZE_MAX;
  std::vector<std::size_t> last(graph.values.size(), kNever);
  used_.assign(graph.values.size(), false);
  for (std::size_t step = 0; step < calls_.size(); ++step) {
    for (const ValueId value : graph.nodes[step].produced()) last[value] = step;
    if (is_skipped(graph.nodes[step])) continue;
    for (const ValueId value : graph.nodes[step].read_values()) {
      last[value] = step;
      used_[value] = true;
    }
  }
  for (const graph::GraphOutput& output : graph.outputs) {
    if (const auto* ref = std::get_if<graph::Ref>(&output.value)) {
      last[ref->value] = kNever;
      used_[ref->value] = true;
    }
  }
  for (const graph::GraphInput& input : graph.inputs) {  // weights stay with whoever owns them
    if (input.value != graph::kNoValue && input.kind != graph::InputKind::user) last[input.value] = kNever;
  }
  for (ValueId value = 0; value < last.size(); ++value) {
    if (last[value] != kNever) calls_[last[value]].frees.push_back(value);
  }
}

}  // namespace lowtide::exec
