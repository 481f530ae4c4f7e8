#include <string>
#include <utility>
#include <vector>

#include "graph/graph_text.hpp"
#include "graph/quote.hpp"
#include "lowtide/error.hpp"

namespace lowtide::graph {
namespace {

/// Walks the graph in execution order and keeps which values exist so far.
class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph), exists_(graph.values.size()) {}

  void run() {
    for (const GraphInput& input : graph_.inputs) {
      if (input.kind != InputKind::constant || input.value != kNoValue) define(input.value, nullptr);
    }
    for (const Node& node : graph_.nodes) visit(node);
    for (const GraphOutput& output : graph_.outputs) check_reads(output.value, nullptr);
  }

 private:
  void visit(const Node& node) {
    for (const Argument& argument : node.arguments) {
      check_reads(argument.value, &node);
      const auto* nested = std::get_if<GraphArg>(&argument.value);
      if (nested == nullptr) continue;
      if (nested->graph == nullptr) {
        throw ArchiveError(place(&node) + " has an empty nested graph " + in_quotes(nested->name));
      }
      verify(*nested->graph);
    }
    for (const ValueId value : node.produced()) define(value, &node);
  }

  void check_reads(const ArgumentValue& argument, const Node* node) {
    read_.clear();
    append_read_values(argument, read_);
    for (const ValueId value : read_) {
      check_id(value, node);
      if (exists_[value] != 0) continue;
      throw ArchiveError("value " + in_quotes(graph_.values[value].name) + " is used by " + place(node) +
                         " before anything produces it");
    }
  }

  void define(ValueId value, const Node* node) {
    check_id(value, node);
    if (std::exchange(exists_[value], char{1}) == 0) return;
    throw ArchiveError("value " + in_quotes(graph_.values[value].name) + " is produced again by " +
                       place(node));
  }

  void check_id(ValueId value, const Node* node) const {
    if (value < exists_.size()) return;
    throw ArchiveError("value number " + std::to_string(value) + " at " + place(node) + " does not exist");
  }

  static std::string place(const Node* node) {
    if (node == nullptr) return "the graph's inputs or outputs";
    return "node " + in_quotes(node->name) + " (" + in_quotes(node->op_name()) + ")";
  }

  const Graph& graph_;
  std::vector<char> exists_;
  std::vector<ValueId> read_;  // of the argument at hand
};

}  // namespace

void verify(const Graph& graph) {
  Verifier(graph).run();
}

}  // namespace lowtide::graph
