#include "graph/graph.hpp"

#include <utility>

#include "graph/quote.hpp"
#include "lowtide/error.hpp"

namespace lowtide::graph {
namespace {

constexpr std::string_view kOperatorPrefix = "torch.ops.";

/// The parts of torch.ops.NAMESPACE.NAME[.OVERLOAD]. NAME may hold dots itself.
struct TargetParts {
  std::string_view name_space;
  std::string_view name;
  std::string_view overload;
};

std::optional<TargetParts> split_target(std::string_view target) {
  if (!target.starts_with(kOperatorPrefix)) return std::nullopt;
  target.remove_prefix(kOperatorPrefix.size());
  const std::size_t first = target.find('.');
  if (first == std::string_view::npos) return std::nullopt;
  const std::size_t last = target.rfind('.');
  TargetParts parts{target.substr(0, first), target.substr(first + 1), {}};
  if (last != first) {
    parts.name = target.substr(first + 1, last - first - 1);
    parts.overload = target.substr(last + 1);
  }
  return parts;
}

template <class T>
void append_references(const MixedList<T>& list, std::vector<ValueId>& values) {
  for (const auto& item : list.items) {
    if (const auto* value = std::get_if<ValueId>(&item)) values.push_back(*value);
  }
}

}  // namespace

std::string Node::op_name() const {
  const auto parts = split_target(target);
  return parts ? std::string(parts->name_space) + "::" + std::string(parts->name) : target;
}

std::string Node::overload() const {
  const auto parts = split_target(target);
  return !parts || parts->overload == "default" ? std::string() : std::string(parts->overload);
}

bool Node::is_operator() const {
  return split_target(target).has_value();
}

std::vector<ValueId> Node::read_values() const {
  std::vector<ValueId> values;
  for (const Argument& argument : arguments) append_read_values(argument.value, values);
  return values;
}

void append_read_values(const ArgumentValue& argument, std::vector<ValueId>& values) {
  if (const auto* reference = std::get_if<Ref>(&argument)) {
    values.push_back(reference->value);
  } else if (const auto* tensors = std::get_if<TensorList>(&argument)) {
    for (const auto& value : tensors->values) {
      if (value) values.push_back(*value);
    }
  } else if (const auto* ints = std::get_if<MixedList<std::int64_t>>(&argument)) {
    append_references(*ints, values);
  } else if (const auto* floats = std::get_if<MixedList<double>>(&argument)) {
    append_references(*floats, values);
  } else if (const auto* bools = std::get_if<MixedList<bool>>(&argument)) {
    append_references(*bools, values);
  }
}

std::vector<ValueId> Node::produced() const {
  std::vector<ValueId> values;
  for (const NodeOutput& output : outputs) {
    if (const auto* value = std::get_if<ValueId>(&output)) {
      values.push_back(*value);
    } else if (const auto* list = std::get_if<std::vector<ValueId>>(&output)) {
      values.insert(values.end(), list->begin(), list->end());
    }
  }
  return values;
}

const Argument* Node::find_argument(std::string_view argument_name) const {
  for (const Argument& argument : arguments) {
    if (argument.name == argument_name) return &argument;
  }
  return nullptr;
}

ValueId Graph::add_value(Value value) {
  const auto id = static_cast<ValueId>(values.size());
  if (!by_name_.try_emplace(value.name, id).second) {
    throw ArchiveError("the graph defines value " + in_quotes(value.name) + " twice");
  }
  values.push_back(std::move(value));
  return id;
}

std::optional<ValueId> Graph::find_value(std::string_view name) const {
  const auto it = by_name_.find(std::string(name));
  return it == by_name_.end() ? std::nullopt : std::optional(it->second);
}

ValueId Graph::value_named(std::string_view name) const {
  if (const auto id = find_value(name)) return *id;
  throw ArchiveError("the graph has no value " + in_quotes(name));
}

}  // namespace lowtide::graph
