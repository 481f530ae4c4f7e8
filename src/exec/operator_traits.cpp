#include "exec/operator_traits.hpp"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_set>

#include "exec/symbolic.hpp"
#include "lowtide/error.hpp"

namespace lowtide::exec {
namespace {

using graph::Node;
using graph::ValueId;

/// Annotated as views in their schema, but they copy when strides, dtype or device ask for it.
const std::unordered_set<std::string_view> kMayCopy{
    "aten::reshape",    "aten::reshape_as",   "aten::contiguous",
    "aten::to",         "aten::flatten",      "aten::ravel",
    "aten::unflatten",  "aten::type_as",      "aten::expand_as",
    "aten::pin_memory", "aten::resolve_conj", "aten::resolve_neg",
    "aten::positive",   "aten::conj",         "aten::_autocast_to_reduced_precision"};

/// Not annotated, but their result can be the argument itself or a view of it.
const std::unordered_set<std::string_view> kMayAlias{
    "aten::dropout",           "aten::feature_dropout", "aten::alpha_dropout", "aten::feature_alpha_dropout",
    "aten::broadcast_tensors", "aten::meshgrid",        "aten::type_as",       "aten::atleast_1d",
    "aten::atleast_2d",        "aten::atleast_3d",      "aten::einsum",        "aten::pad",
    "aten::cartesian_prod",    "aten::combinations",    "aten::rot90",         "aten::to_dense",
    "aten::block_diag",        "aten::fft_fftshift",    "aten::tensordot"};

const std::unordered_set<std::string_view> kDropouts{"aten::dropout", "aten::feature_dropout",
                                                     "aten::alpha_dropout", "aten::feature_alpha_dropout"};

const std::unordered_set<std::string_view> kSkipped{
    "aten::_assert_tensor_metadata", "aten::sym_constrain_range", "aten::sym_constrain_range_for_size",
    "aten::_assert_async", "aten::_functional_assert_async"};

std::string where(const Node& node) {
  return "node '" + node.name + "'" + (node.source.empty() ? "" : " (" + node.source + ")");
}

/// Values that one argument refers to.
std::vector<ValueId> values_of(const graph::Argument& argument) {
  std::vector<ValueId> values;
  if (const auto* ref = std::get_if<graph::Ref>(&argument.value)) values.push_back(ref->value);
  if (const auto* list = std::get_if<graph::TensorList>(&argument.value)) {
    for (const auto& item : list->values)
      if (item) values.push_back(*item);
  }
  return values;
}

/// Views by another name: split with a version counter of its own for each piece.
const std::unordered_set<std::string_view> kUnannotatedViews{
    "aten::_unsafe_view", "aten::unsafe_split", "aten::unsafe_split_with_sizes", "aten::unsafe_chunk"};

bool is_inference_dropout(const Node& node) {
  if (kDropouts.count(node.op_name()) == 0) return false;
  const graph::Argument* train = node.find_argument("train");
  const bool* flag = train ? std::get_if<bool>(&train->value) : nullptr;
  return flag != nullptr && !*flag;
}

void append(std::vector<ValueId>& to, const std::vector<ValueId>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

/// The alias sets of a type, looking into lists: Tensor(a!)[] carries its set on the element.
const c10::AliasInfo* alias_info(const c10::Argument& argument) {
  const c10::AliasInfo* info = argument.alias_info();
  if (info != nullptr && info->beforeSets().empty() && !info->containedTypes().empty())
    return &info->containedTypes().front();
  return info;
}

void annotate(Node& node, const c10::FunctionSchema& schema) {
  const std::string op = node.op_name();
  std::vector<std::pair<const c10::AliasInfo*, std::vector<ValueId>>> annotated;
  std::vector<ValueId> all;
  for (const c10::Argument& formal : schema.arguments()) {
    const graph::Argument* actual = node.find_argument(formal.name());
    if (actual == nullptr) continue;
    std::vector<ValueId> values = values_of(*actual);
    append(all, values);
    if (const c10::AliasInfo* info = alias_info(formal)) {
      if (info->isWrite()) append(node.traits.writes, values);
      annotated.emplace_back(info, std::move(values));
    }
  }
  const bool self_only = is_inference_dropout(node) || kUnannotatedViews.count(op) > 0;
  std::size_t produced = 0;
  node.traits.outputs.assign(node.produced().size(), {});
  for (std::size_t r = 0; r < node.outputs.size(); ++r) {
    const std::size_t count = std::holds_alternative<graph::OutputNone>(node.outputs[r])
                                  ? 0
                                  : (std::holds_alternative<ValueId>(node.outputs[r])
                                         ? 1
                                         : std::get<std::vector<ValueId>>(node.outputs[r]).size());
    graph::AliasTraits traits;
    const c10::AliasInfo* info = r < schema.returns().size() ? alias_info(schema.returns()[r]) : nullptr;
    if (info != nullptr) {
      for (const auto& [set, values] : annotated) {
        const bool shared =
            std::any_of(set->beforeSets().begin(), set->beforeSets().end(),
                        [&](const auto& symbol) { return info->beforeSets().count(symbol) > 0; });
        if (shared)
          append(kMayCopy.count(op) > 0 && !info->isWrite() ? traits.may_alias : traits.aliases, values);
      }
    } else if (self_only && !all.empty()) {
      traits.aliases.push_back(all.front());
    } else if (kMayAlias.count(op) > 0) {
      traits.may_alias = all;
    }
    for (std::size_t i = 0; i < count; ++i) node.traits.outputs[produced++] = traits;
  }
}

}  // namespace

bool is_skipped(const Node& node) {
  return kSkipped.count(node.op_name()) > 0;
}

bool is_random(const Node& node) {
  if (!node.is_operator() || is_symbolic(node)) return false;
  const auto op = c10::Dispatcher::singleton().findSchema({node.op_name(), node.overload()});
  if (!op || !op->hasTag(at::Tag::nondeterministic_seeded)) return false;
  // Dropout that is switched off draws nothing.
  if (const graph::Argument* train = node.find_argument("train")) {
    const auto* on = std::get_if<bool>(&train->value);
    if (on != nullptr && !*on) return false;
  }
  if (!op->schema().argumentIndexWithName("dropout_p")) return true;
  const graph::Argument* probability = node.find_argument("dropout_p");
  const auto* p = probability == nullptr ? nullptr : std::get_if<double>(&probability->value);
  return probability != nullptr && (p == nullptr || *p != 0);
}

bool surely_fresh(const Node& node) {
  static const std::unordered_set<std::string_view> kSometimesOperand{
      "aten::pixel_shuffle", "aten::pixel_unshuffle", "aten::channel_shuffle",
      "aten::native_channel_shuffle"};
  if (kSometimesOperand.count(node.op_name()) > 0) return false;
  if (node.op_name() == "aten::batch_norm") return true;  // tagged for the statistics that training writes
  const auto op = c10::Dispatcher::singleton().findSchema({node.op_name(), node.overload()});
  return op && !op->hasTag(at::Tag::maybe_aliasing_or_mutating);
}

bool is_symbolic(const Node& node) {
  return find_symbolic(node).has_value();
}

void annotate_operator(Node& node) {
  node.traits = {};
  if (is_symbolic(node)) return;
  if (!node.is_operator())
    throw UnsupportedOp("unknown target '" + node.target + "' in " + where(node) +
                        ": export the model with PyTorch 2.11 and without custom Python calls");
  if (node.target.find(".higher_order.") != std::string::npos)
    throw UnsupportedOp(
        "higher-order operator '" + node.target + "' in " + where(node) +
        " is not supported: rewrite the control flow as tensor operations (torch.where), or run the loop "
        "in the calling program");
  const auto handle = c10::Dispatcher::singleton().findSchema({node.op_name(), node.overload()});
  if (!handle)
    throw UnsupportedOp("operator '" + node.op_name() +
                        (node.overload().empty() ? "" : "." + node.overload()) + "' in " + where(node) +
                        " is not registered: it comes from a library that this program does not have");
  annotate(node, handle->schema());
}

void annotate_operators(graph::Program& program) {
  for (Node& node : program.graph.nodes) annotate_operator(node);
}

}  // namespace lowtide::exec
