#include "exec/reuse_operands.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "exec/operator_traits.hpp"

namespace lowtide::exec {
namespace {

using graph::Node;
using graph::NodeId;
using graph::Ref;
using graph::ValueId;

struct Form {
  std::string_view target;
  /// "out": the operand is passed once more as `out`; nothing: the operator works in place on `self`.
  bool out = true;
};

/// Only operators whose `out=` form is the kernel itself: the generated ones compute aside and copy.
const std::unordered_map<std::string_view, Form>& forms() {
  static const std::unordered_map<std::string_view, Form> kForms{
      {"torch.ops.aten.abs.default", {"torch.ops.aten.abs.out"}},
      {"torch.ops.aten.add.Tensor", {"torch.ops.aten.add.out"}},
      {"torch.ops.aten.ceil.default", {"torch.ops.aten.ceil.out"}},
      {"torch.ops.aten.clamp.default", {"torch.ops.aten.clamp.out"}},
      {"torch.ops.aten.clamp_max.default", {"torch.ops.aten.clamp_max.out"}},
      {"torch.ops.aten.clamp_min.default", {"torch.ops.aten.clamp_min.out"}},
      {"torch.ops.aten.cos.default", {"torch.ops.aten.cos.out"}},
      {"torch.ops.aten.div.Tensor", {"torch.ops.aten.div.out"}},
      {"torch.ops.aten.div.Tensor_mode", {"torch.ops.aten.div.out_mode"}},
      {"torch.ops.aten.elu.default", {"torch.ops.aten.elu.out"}},
      {"torch.ops.aten.erf.default", {"torch.ops.aten.erf.out"}},
      {"torch.ops.aten.exp.default", {"torch.ops.aten.exp.out"}},
      {"torch.ops.aten.floor.default", {"torch.ops.aten.floor.out"}},
      {"torch.ops.aten.gelu.default", {"torch.ops.aten.gelu.out"}},
      {"torch.ops.aten.hardsigmoid.default", {"torch.ops.aten.hardsigmoid.out"}},
      {"torch.ops.aten.hardswish.default", {"torch.ops.aten.hardswish.out"}},
      {"torch.ops.aten.hardtanh.default", {"torch.ops.aten.hardtanh_.default", false}},
      {"torch.ops.aten.leaky_relu.default", {"torch.ops.aten.leaky_relu.out"}},
      {"torch.ops.aten.log.default", {"torch.ops.aten.log.out"}},
      {"torch.ops.aten.masked_fill.Scalar", {"torch.ops.aten.masked_fill_.Scalar", false}},
      {"torch.ops.aten.masked_fill.Tensor", {"torch.ops.aten.masked_fill_.Tensor", false}},
      {"torch.ops.aten.maximum.default", {"torch.ops.aten.maximum.out"}},
      {"torch.ops.aten.minimum.default", {"torch.ops.aten.minimum.out"}},
      {"torch.ops.aten.mish.default", {"torch.ops.aten.mish.out"}},
      {"torch.ops.aten.mul.Tensor", {"torch.ops.aten.mul.out"}},
      {"torch.ops.aten.neg.default", {"torch.ops.aten.neg.out"}},
      {"torch.ops.aten.pow.Tensor_Scalar", {"torch.ops.aten.pow.Tensor_Scalar_out"}},
      {"torch.ops.aten.pow.Tensor_Tensor", {"torch.ops.aten.pow.Tensor_Tensor_out"}},
      {"torch.ops.aten.reciprocal.default", {"torch.ops.aten.reciprocal.out"}},
      {"torch.ops.aten.relu.default", {"torch.ops.aten.relu_.default", false}},
      {"torch.ops.aten.relu6.default", {"torch.ops.aten.relu6_.default", false}},
      {"torch.ops.aten.round.default", {"torch.ops.aten.round.out"}},
      {"torch.ops.aten.rsqrt.default", {"torch.ops.aten.rsqrt.out"}},
      {"torch.ops.aten.sigmoid.default", {"torch.ops.aten.sigmoid.out"}},
      {"torch.ops.aten.silu.default", {"torch.ops.aten.silu.out"}},
      {"torch.ops.aten.sin.default", {"torch.ops.aten.sin.out"}},
      {"torch.ops.aten.softplus.default", {"torch.ops.aten.softplus.out"}},
      {"torch.ops.aten.sqrt.default", {"torch.ops.aten.sqrt.out"}},
      {"torch.ops.aten.sub.Tensor", {"torch.ops.aten.sub.out"}},
      {"torch.ops.aten.tanh.default", {"torch.ops.aten.tanh.out"}},
      {"torch.ops.aten.where.self", {"torch.ops.aten.where.self_out"}},
  };
  return kForms;
}

/// Views of all elements of their operand: whoever overwrites the view overwrites the whole tensor.
bool keeps_all_elements(std::string_view op) {
  static constexpr std::array<std::string_view, 15> kOps{
      "aten::view",      "aten::_unsafe_view", "aten::reshape",   "aten::flatten", "aten::unflatten",
      "aten::unsqueeze", "aten::squeeze",      "aten::transpose", "aten::t",       "aten::permute",
      "aten::movedim",   "aten::contiguous",   "aten::view_as",   "aten::dropout", "aten::to"};
  return std::find(kOps.begin(), kOps.end(), op) != kOps.end();
}

class Rewriter {
 public:
  explicit Rewriter(graph::Program& program) : program_(program), graph_(program.graph) {
    parent_.resize(graph_.values.size());
    std::iota(parent_.begin(), parent_.end(), ValueId{0});
    last_.assign(graph_.values.size(), 0);
    whole_.assign(graph_.values.size(), false);
    const auto never = static_cast<NodeId>(graph_.nodes.size());
    for (const graph::GraphInput& input : graph_.inputs) {
      if (input.value != graph::kNoValue) last_[input.value] = never;  // they belong to somebody else
    }
    for (const graph::GraphOutput& output : graph_.outputs) {
      std::vector<ValueId> values;
      append_read_values(output.value, values);
      for (const ValueId value : values) last_[value] = never;
    }
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) describe(id);
  }

  std::size_t run() {
    std::size_t count = 0;
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) count += rewrite(id);
    return count;
  }

 private:
  ValueId root(ValueId value) {
    while (parent_[value] != value) value = parent_[value] = parent_[parent_[value]];
    return value;
  }

  /// All values that share memory, or may: one group, which lives as long as any of them.
  void join(ValueId a, ValueId b) {
    a = root(a);
    b = root(b);
    last_[a] = std::max(last_[a], last_[b]);
    parent_[b] = a;
  }

  void describe(NodeId id) {
    const Node& node = graph_.nodes[id];
    for (const ValueId value : node.read_values()) {
      NodeId& last = last_[root(value)];
      last = std::max(last, id);
    }
    const std::vector<ValueId> produced = node.produced();
    const bool fresh = node.is_operator() && surely_fresh(node);
    for (std::size_t i = 0; i < produced.size() && i < node.traits.outputs.size(); ++i) {
      const graph::AliasTraits& traits = node.traits.outputs[i];
      whole_[produced[i]] = fresh && traits.aliases.empty() && traits.may_alias.empty();
      if (!fresh) {
        for (const ValueId operand : node.read_values()) join(operand, produced[i]);
      }
      for (const auto* bases : {&traits.aliases, &traits.may_alias}) {
        for (const ValueId base : *bases) {
          if (keeps_all_elements(node.op_name())) whole_[produced[i]] = whole_[base];
          join(base, produced[i]);
        }
      }
    }
  }

  bool agrees(ValueId operand, ValueId result) const {
    const graph::TensorMeta& a = graph_.values[operand].meta;
    const graph::TensorMeta& b = graph_.values[result].meta;
    if (a.dtype == graph::DType::unknown || a.dtype != b.dtype) return false;
    return same(a.sizes, b.sizes) && same(a.strides, b.strides);
  }

  bool same(const std::vector<graph::SymExpr>& a, const std::vector<graph::SymExpr>& b) const {
    const auto equal = [&](const graph::SymExpr& x, const graph::SymExpr& y) {
      if (x.is_constant() && y.is_constant()) return x.constant() == y.constant();
      const std::string text = x.to_string(program_.symbols);
      return text.find('?') == std::string::npos && text == y.to_string(program_.symbols);
    };
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), equal);
  }

  bool dies_here(NodeId id, const Node& node, ValueId operand) {
    if (!whole_[operand] || last_[root(operand)] != id) return false;
    // Another name of the same memory, seen otherwise, would be overwritten before it is read.
    for (const ValueId other : node.read_values()) {
      if (other != operand && root(other) == root(operand)) return false;
    }
    return true;
  }

  bool rewrite(NodeId id) {
    Node& node = graph_.nodes[id];
    const auto form = forms().find(node.target);
    if (form == forms().end()) return false;
    const std::vector<ValueId> produced = node.produced();
    if (produced.size() != 1) return false;
    const ValueId result = produced.front();
    for (const graph::Argument& argument : node.arguments) {
      const auto* operand = std::get_if<Ref>(&argument.value);
      if (operand == nullptr || graph_.values[operand->value].kind != graph::ValueKind::tensor) continue;
      if (!form->second.out && argument.name != "self") continue;
      if (!dies_here(id, node, operand->value) || !agrees(operand->value, result)) continue;
      const Ref reused = *operand;
      node.target = form->second.target;
      if (form->second.out) node.arguments.push_back({"out", reused});
      annotate_operator(node);
      join(reused.value, result);
      whole_[result] = true;
      return true;
    }
    return false;
  }

  graph::Program& program_;
  graph::Graph& graph_;
  std::vector<ValueId> parent_;
  std::vector<NodeId> last_;  // of a group, at its root: the last node that reads it
  std::vector<bool> whole_;   // all elements of its storage are the value's
};

}  // namespace

std::size_t reuse_operands(graph::Program& program) {
  return Rewriter(program).run();
}

bool reuses_operand(const graph::Node& node) {
  static const std::unordered_set<std::string_view> kTargets = [] {
    std::unordered_set<std::string_view> targets;
    for (const auto& [plain, form] : forms()) targets.insert(form.target);
    return targets;
  }();
  return kTargets.contains(node.target);
}

}  // namespace lowtide::exec
