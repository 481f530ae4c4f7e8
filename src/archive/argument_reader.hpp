// Values, arguments and outputs of the export schema.
#pragma once

#include <optional>
#include <string>

#include "archive/json_tree.hpp"
#include "graph/graph.hpp"

namespace lowtide::archive {

/// Reads nested graphs for as_graph; the argument is the GraphArgument's "graph".
class GraphReader {
 public:
  virtual graph::Graph read_nested(Json json) = 0;

 protected:
  ~GraphReader() = default;
};

/// Reads the arguments of one graph's nodes. Names are looked up in the graph, which must hold all of its
/// values.
class ArgumentReader {
 public:
  ArgumentReader(graph::Graph& graph, GraphReader& nested) : graph_(graph), nested_(nested) {}

  /// An `Argument` union, such as {"as_tensor": {"name": "x"}}.
  graph::ArgumentValue value(Json argument) const;

  /// The same as a node's result. Values that the graph does not declare are added without meta.
  graph::NodeOutput output(Json argument);

  /// The value of that name; it must be of that kind.
  graph::ValueId reference(Json name, graph::ValueKind kind) const;

 private:
  std::optional<graph::ValueId> optional_tensor(Json json) const;
  template <class T, class Number>
  graph::ArgumentValue symbolic(Json json, const char* tag, graph::ValueKind kind, Number number) const;
  template <class T, class Number>
  graph::ArgumentValue symbolic_list(Json list, const char* tag, graph::ValueKind kind, Number number) const;
  std::optional<graph::ArgumentValue> plain_value(Json content) const;
  std::optional<graph::ArgumentValue> symbolic_value(Json content) const;
  std::optional<graph::ArgumentValue> list_value(Json content) const;
  graph::ValueId result(Json name, graph::ValueKind kind);

  graph::Graph& graph_;
  GraphReader& nested_;
};

}  // namespace lowtide::archive
