// A program bound to its operators and its device: every argument is a constant made once, a value of the
// run, or a list of both.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <optional>
#include <vector>

#include "exec/symbolic.hpp"
#include "graph/graph.hpp"

namespace lowtide::exec {

/// One argument of a call, in the order of the operator's schema.
struct BoundArgument {
  enum class Kind : std::uint8_t {
    constant,
    value,
    tensor_list,
    optional_tensor_list,
    int_list,
    double_list,
    bool_list
  };
  /// What has to happen to a symbolic value where the schema wants something else.
  enum class Convert : std::uint8_t { none, number_to_tensor, to_double };
  /// An item of a list: a value of the run, or `constant`.
  struct Item {
    graph::ValueId value = graph::kNoValue;
    double number = 0;
    std::int64_t integer = 0;
  };

  Kind kind = Kind::constant;
  Convert convert = Convert::none;
  c10::IValue constant;
  graph::ValueId value = graph::kNoValue;
  std::vector<Item> items;
};

/// One step of the run. Neither `op` nor `symbolic`: the node is skipped.
struct BoundCall {
  std::optional<c10::OperatorHandle> op;
  std::optional<SymbolicOp> symbolic;
  std::vector<BoundArgument> arguments;
  std::vector<graph::ValueId> results;  // kNoValue for results that nobody names
  bool list_result = false;             // one Tensor[] result that is spread over `results`
  std::vector<graph::ValueId> frees;    // values that die after this step
};

/// Immutable, shareable between threads.
class BoundProgram {
 public:
  /// Throws UnsupportedOp, or ArchiveError for arguments that do not fit the operator's schema.
  BoundProgram(std::shared_ptr<const graph::Program> program, c10::Device device);

  const graph::Program& program() const { return *program_; }
  const std::vector<BoundCall>& calls() const { return calls_; }
  c10::Device device() const { return device_; }
  /// Is the user input with this value id read by any node or output?
  bool is_used(graph::ValueId value) const { return used_[value]; }

 private:
  BoundCall bind(const graph::Node& node) const;
  void plan_frees();

  std::shared_ptr<const graph::Program> program_;
  c10::Device device_;
  std::vector<BoundCall> calls_;
  std::vector<bool> used_;
};

}  // namespace lowtide::exec
