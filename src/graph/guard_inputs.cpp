#include "graph/guard_inputs.hpp"

#include <charconv>
#include <string_view>
#include <utility>

namespace lowtide::graph {

GuardInputs::GuardInputs(const Program& program) : program_(program) {
  for (std::size_t i = 0; i < program.graph.inputs.size(); ++i) {
    const InputKind kind = program.graph.inputs[i].kind;
    if (kind == InputKind::user || kind == InputKind::constant) inputs_.push_back(i);
  }
  for (std::size_t i = 0; i < program.user_input_names.size() && i < inputs_.size(); ++i)
    positions_.emplace(program.user_input_names[i], i);
}

std::optional<std::size_t> GuardInputs::find(const std::string& base,
                                             const std::vector<std::string>& path) const {
  if (const auto found = named(base, path, 0)) return found;
  if (path.empty()) return std::nullopt;
  const std::string_view first = path.front();
  const std::string index(first.substr(1, first.size() - 2));
  std::size_t position = inputs_.size();
  const auto read = std::from_chars(index.data(), index.data() + index.size(), position);
  if (read.ec == std::errc() && read.ptr == index.data() + index.size()) {
    // A strict export counts the flattened inputs.
    if (base == "flat_args" && path.size() == 1 && position < inputs_.size()) return position;
    return named(base + "_" + index, path, 1);  // *args
  }
  if (!first.starts_with("['")) return std::nullopt;
  return named(std::string(first.substr(2, first.size() - 4)), path, 1);  // **kwargs go by their own names
}

const Value* GuardInputs::value(std::size_t position) const {
  const GraphInput& found = input(position);
  if (found.kind != InputKind::user || found.value == kNoValue) return nullptr;
  return &program_.graph.values[found.value];
}

std::optional<std::size_t> GuardInputs::named(std::string name, const std::vector<std::string>& path,
                                              std::size_t from) const {
  for (std::size_t i = from; i < path.size(); ++i) name += path[i];
  const auto found = positions_.find(name);
  return found == positions_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace lowtide::graph
