// Runs the steps of a bound program on the values of a job. Who acquires the weights of a step, and which job
// passes which step when, is decided above (session/wave_run).
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <vector>

#include "exec/bound_program.hpp"
#include "exec/frame.hpp"

namespace lowtide::exec {

/// A part of a step whose weight is split: rows [first, end) of `rows`.
struct RowChunk {
  std::int64_t first = 0;
  std::int64_t end = 0;
  std::int64_t rows = 0;
};

/// Owns the weights' places and nothing of the jobs. Not thread-safe.
class Executor {
 public:
  explicit Executor(std::shared_ptr<const BoundProgram> program);

  const BoundProgram& program() const { return *program_; }
  std::size_t steps() const { return program_->calls().size(); }
  Frame make_frame() const { return Frame(weights_.size()); }

  /// Sets a weight, buffer or constant; it stays until replaced or until drop_weights().
  void set_weight(graph::ValueId value, const at::Tensor& tensor) { weights_[value] = tensor; }
  void drop_weights();

  /// Brings a tensor of the host to the device without waiting; used for what host operators give.
  using Upload = std::function<at::Tensor(const at::Tensor& host)>;
  /// The embedding lookup at `step` runs on the host over `table`; only the rows travel.
  void look_up_on_host(graph::NodeId step, at::Tensor table, Upload upload);

  /// Runs one step and drops what dies with it. Throws OperatorError naming node, arguments and source line,
  /// OutOfBudget when the device refused memory, DeviceError when it failed otherwise; the frame is then as
  /// before the step, as far as the operator itself left its arguments alone.
  void run_step(Frame& frame, std::size_t step);
  /// Runs `linear` at `step` for some rows of its weight, whose place holds only them. The result is complete
  /// after the last chunk; chunks come in order.
  void run_chunk(Frame& frame, std::size_t step, const RowChunk& chunk);

  /// Value of an output, still on the device.
  const c10::IValue& value(const Frame& frame, graph::ValueId id) const {
    return is_weight_[id] ? weights_[id] : frame[id];
  }
  /// Node, arguments and their shapes, for messages.
  std::string describe(const Frame& frame, std::size_t step) const;

 private:
  struct HostLookup {
    at::Tensor table;
    Upload upload;
  };

  template <class Body>
  void guarded(const Frame& frame, std::size_t step, Body body);
  void call(Frame& frame, std::size_t step);
  void push(const Frame& frame, const BoundArgument& argument);
  void call_symbolic(Frame& frame, const BoundCall& call);
  void call_on_host(Frame& frame, const BoundCall& call, const HostLookup& lookup);
  void call_chunk(Frame& frame, const BoundCall& call, const RowChunk& chunk);
  void store_results(Frame& frame, const BoundCall& call);
  void drop_dead(Frame& frame, std::size_t step);

  std::shared_ptr<const BoundProgram> program_;
  std::vector<c10::IValue> weights_;  // per value; none where it is not a weight
  std::vector<bool> is_weight_;       // per value
  std::unordered_map<std::size_t, HostLookup> lookups_;
  std::vector<c10::IValue> stack_;
};

}  // namespace lowtide::exec
