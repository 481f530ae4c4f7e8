#include "graph/batch_independence.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "graph/batch_flow.hpp"
#include "graph/quote.hpp"

namespace lowtide::graph {
namespace {

/// Values that may share memory, as sets that grow.
class SharedMemory {
 public:
  explicit SharedMemory(std::size_t values) : set_of_(values), members_(values) {
    std::iota(set_of_.begin(), set_of_.end(), ValueId{0});
    for (ValueId value = 0; value < values; ++value) members_[value] = {value};
  }

  const std::vector<ValueId>& sharing_with(ValueId value) const { return members_[set_of_[value]]; }

  void join(ValueId a, ValueId b) {
    ValueId small = set_of_[a], large = set_of_[b];
    if (small == large) return;
    if (members_[small].size() > members_[large].size()) std::swap(small, large);
    for (const ValueId value : members_[small]) set_of_[value] = large;
    members_[large].insert(members_[large].end(), members_[small].begin(), members_[small].end());
    members_[small].clear();
  }

 private:
  std::vector<ValueId> set_of_;
  std::vector<std::vector<ValueId>> members_;
};

class Follower {
 public:
  Follower(const Program& program, SymbolId batch)
      : program_(program),
        graph_(program.graph),
        sizes_(program, batch),
        flows_(graph_.values.size()),
        memory_(graph_.values.size()),
        used_(graph_.values.size()) {
    std::vector<ValueId> read;
    for (const Node& node : graph_.nodes) {
      for (const Argument& argument : node.arguments) append_read_values(argument.value, read);
    }
    for (const GraphOutput& output : graph_.outputs) append_read_values(output.value, read);
    for (const ValueId value : read) used_[value] = true;
  }

  BatchIndependence run() {
    BatchIndependence result;
    std::string place;
    try {
      for (const GraphInput& input : graph_.inputs) {
        place = "input " + (input.value == kNoValue ? "" : in_quotes(graph_.values[input.value].name));
        enter(input);
      }
      for (const Node& node : graph_.nodes) {
        place = name_of(node);
        pass(node);
      }
      for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
        place = "output " + std::to_string(i);
        result.output_dims.push_back(leave(graph_.outputs[i]));
      }
    } catch (const Mixes& mixes) {
      return {.obstacle = place + " " + mixes.reason, .output_dims = {}};
    }
    return result;
  }

 private:
  static std::string name_of(const Node& node) {
    const std::string overload = node.overload();
    std::string text = node.op_name() + (overload.empty() ? "" : "." + overload);
    if (!node.name.empty()) text += " " + in_quotes(node.name);
    return node.source.empty() ? text : text + " (" + node.source + ")";
  }

  bool holds_batch(const TensorMeta& meta) const {
    return std::any_of(meta.sizes.begin(), meta.sizes.end(),
                       [&](const SymExpr& size) { return sizes_.contains_batch(size); });
  }

  void enter(const GraphInput& input) {
    if (input.value == kNoValue) return;
    const Value& value = graph_.values[input.value];
    if (input.kind == InputKind::user) note_told(value);
    if (value.kind == ValueKind::tensor && holds_batch(value.meta)) {
      if (input.kind != InputKind::user) throw Mixes{"is no input of the caller, but has it as a size"};
      const NodeView view(graph_, kNoNode, flows_, sizes_);
      flows_[input.value] = Flow::of(view.carried_by_size(input.value));
    } else if (value.kind == ValueKind::sym_int && sizes_.contains_batch(value.expr)) {
      throw Mixes{"is a number that must agree with it"};
    }
  }

  /// Symbols that the shapes of a job tell before it runs.
  void note_told(const Value& value) {
    if (const auto symbol = value.expr.as_symbol()) told_.push_back(*symbol);
    for (const SymExpr& size : value.meta.sizes) {
      if (const auto symbol = size.as_symbol()) told_.push_back(*symbol);
    }
  }

  /// Whether the number can be computed from the shapes of a job.
  bool is_told(const SymExpr& expr) const {
    const std::vector<SymbolId> symbols = expr.symbols();
    return !symbols.empty() && std::all_of(symbols.begin(), symbols.end(), [&](SymbolId symbol) {
      return std::find(told_.begin(), told_.end(), symbol) != told_.end();
    });
  }

  void pass(const Node& node) {
    const std::vector<ValueId> produced = node.produced();
    share_memory(node, produced);
    const std::vector<ValueId> read = node.read_values();
    const bool touched = std::any_of(read.begin(), read.end(),
                                     [&](ValueId value) { return flows_[value].kind != Flow::Kind::free; });
    std::vector<Flow> results(produced.size());
    if (touched) results = node.is_operator() ? operator_results(node) : number_results(produced);
    for (std::size_t i = 0; i < produced.size(); ++i) {
      check(produced[i], results.at(i));
      flows_[produced[i]] = results[i];
    }
    if (touched) check_writes(node, produced);
  }

  std::vector<Flow> operator_results(const Node& node) const {
    const BatchRule rule = find_batch_rule(node.op_name());
    if (rule == nullptr) throw Mixes{"is an operator of which it is not known that it keeps indices apart"};
    return rule(NodeView(graph_, node, flows_, sizes_));
  }

  /// Arithmetic on sizes.
  std::vector<Flow> number_results(const std::vector<ValueId>& produced) const {
    std::vector<Flow> results;
    for (const ValueId value : produced) {
      if (graph_.values[value].kind == ValueKind::tensor) throw Mixes{"makes a tensor of its size"};
      results.push_back({Flow::Kind::sized});
    }
    return results;
  }

  /// What a rule says against what the export recorded.
  void check(ValueId value, const Flow& flow) const {
    if (graph_.values[value].kind != ValueKind::tensor) {
      if (flow.is_carried()) throw Mixes{"makes a number of it"};
      return;
    }
    const TensorMeta& meta = graph_.values[value].meta;
    if (!flow.is_carried()) {
      if (holds_batch(meta)) throw Mixes{"makes a size of it in a way that cannot be followed"};
      return;
    }
    if (!used_[value]) return;  // the second results of lstm are recorded with a dimension too many
    const Carried recorded =
        NodeView(graph_, kNoNode, flows_, sizes_).carried_by_size(value, flow.carried.fold.outer);
    if (recorded.dim != flow.carried.dim || recorded.fold != flow.carried.fold)
      throw Mixes{"makes a size of it in a way that cannot be followed"};
  }

  static bool writes_by_name(const Node& node) {
    const std::string name = node.op_name();
    return (name.ends_with('_') && !name.ends_with("__")) || node.overload().ends_with("out");
  }

  /// Written values; where no traits were filled in, by the operator's name.
  static std::vector<ValueId> written(const Node& node) {
    if (!node.traits.writes.empty() || !writes_by_name(node)) return node.traits.writes;
    const Argument* argument = node.find_argument("out");
    if (argument == nullptr && !node.arguments.empty()) argument = &node.arguments.front();
    std::vector<ValueId> values;
    if (argument != nullptr) append_read_values(argument->value, values);
    return values;
  }

  void share_memory(const Node& node, const std::vector<ValueId>& produced) {
    for (std::size_t i = 0; i < produced.size() && i < node.traits.outputs.size(); ++i) {
      for (const ValueId base : node.traits.outputs[i].aliases) memory_.join(produced[i], base);
      for (const ValueId base : node.traits.outputs[i].may_alias) memory_.join(produced[i], base);
    }
    for (const ValueId base : written(node)) {
      for (const ValueId value : produced) memory_.join(value, base);
    }
  }

  /// What is written must be a batch under all its names, and then stays one: each element belongs to one
  /// index before and, as the results have it, after. It no longer counts.
  void check_writes(const Node& node, const std::vector<ValueId>& produced) {
    for (const ValueId base : written(node)) {
      bool counts = !produced.empty();
      const Flow& before = flows_[base];
      for (const ValueId value : produced) {
        const Flow& after = flows_[value];
        if (after.is_carried() && before.is_carried() &&
            (after.carried.dim != before.carried.dim || after.carried.fold != before.carried.fold))
          throw Mixes{"writes into " + in_quotes(graph_.values[base].name) + ", which has it elsewhere"};
        counts = counts && after.is_carried() && after.carried.counts;
      }
      for (const ValueId value : memory_.sharing_with(base)) {
        Flow& flow = flows_[value];
        if (!flow.is_carried())
          throw Mixes{"writes into " + in_quotes(graph_.values[value].name) + ", which all indices share"};
        flow.carried.counts = flow.carried.counts && counts;
      }
    }
  }

  std::optional<std::size_t> leave(const GraphOutput& output) const {
    const auto* ref = std::get_if<Ref>(&output.value);
    if (ref == nullptr) return std::nullopt;
    const Flow& flow = flows_[ref->value];
    const Value& value = graph_.values[ref->value];
    if (flow.kind == Flow::Kind::sized) {
      if (value.kind != ValueKind::sym_int || value.expr.is_constant())
        throw Mixes{"is a number computed from its size"};
      if (!is_told(value.expr)) throw Mixes{"is a number computed from its size and from data"};
      return std::nullopt;
    }
    if (!flow.is_carried()) return std::nullopt;
    if (output.kind != OutputKind::user && output.kind != OutputKind::user_input_mutation)
      throw Mixes{"is state of the model and depends on it"};
    if (flow.carried.fold.outer != kOne) throw Mixes{"has another dimension folded around it"};
    return flow.carried.dim;
  }

  static const Node kNoNode;

  const Program& program_;
  const Graph& graph_;
  BatchSizes sizes_;
  std::vector<Flow> flows_;
  SharedMemory memory_;
  std::vector<bool> used_;      // per value: by a node or as an output
  std::vector<SymbolId> told_;  // by the inputs
};

const Node Follower::kNoNode;

}  // namespace

BatchIndependence find_batch_independence(const Program& program, SymbolId symbol) {
  return Follower(program, symbol).run();
}

}  // namespace lowtide::graph
