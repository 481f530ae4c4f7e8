// Which user inputs the names in guards mean.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/graph.hpp"

namespace lowtide::graph {

/// The user inputs of a program by the ways in which export names them. Refers to the program.
class GuardInputs {
 public:
  explicit GuardInputs(const Program& program);

  /// Position of the input that L['base'] and `path` name, the parts behind it: "[0]", "['k']", ".field".
  std::optional<std::size_t> find(const std::string& base, const std::vector<std::string>& path) const;
  const GraphInput& input(std::size_t position) const { return program_.graph.inputs[inputs_[position]]; }
  /// The value of an input in the graph; null for one that was fixed at export.
  const Value* value(std::size_t position) const;

 private:
  std::optional<std::size_t> named(std::string name, const std::vector<std::string>& path,
                                   std::size_t from) const;

  const Program& program_;
  std::vector<std::size_t> inputs_;  // among all inputs of the graph
  std::unordered_map<std::string, std::size_t> positions_;
};

}  // namespace lowtide::graph
