// Runs a bound program: acquire the weights of a step, call its operator, release what died.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <atomic>
#include <functional>
#include <vector>

#include "exec/bound_program.hpp"
#include "residency/residency_manager.hpp"

namespace lowtide::exec {

/// What a run may be given beside its inputs. Pointers are borrowed for the run.
struct RunHooks {
  residency::ResidencyManager* residency = nullptr;   // null: all weights are in place
  const std::atomic<bool>* cancel = nullptr;          // set from outside: the run ends after the present step
  std::function<void(std::size_t step)> before_step;  // for measuring
  std::function<void(std::size_t step)> after_step;
};

/// Owns the values of the run. Not thread-safe: one run at a time.
class Executor {
 public:
  explicit Executor(std::shared_ptr<const BoundProgram> program);

  const BoundProgram& program() const { return *program_; }

  /// Sets a weight, buffer or constant; it stays until replaced or until drop_weights().
  void set_weight(graph::ValueId value, const at::Tensor& tensor) { frame_[value] = tensor; }
  void drop_weights();

  /// Sets a user input of the next run; consumed by it.
  void set_input(graph::ValueId value, c10::IValue input) { frame_[value] = std::move(input); }

  /// Runs all steps. Afterwards the values of the graph's outputs are in place until take_output()/clear().
  /// Throws OperatorError naming node, arguments and source line, OutOfBudget when the device refused memory,
  /// DeviceError when it failed otherwise, Cancelled. After an exception only the weights are left in the
  /// frame.
  void run(const RunHooks& hooks);

  /// Value of an output, still on the device.
  const c10::IValue& value(graph::ValueId id) const { return frame_[id]; }
  /// Drops everything but the weights.
  void clear();

 private:
  void call(std::size_t step);
  void push(const BoundArgument& argument);
  void call_symbolic(const BoundCall& call);
  void store_results(const BoundCall& call);
  [[noreturn]] void fail(std::size_t step, const std::string& reason) const;
  std::string describe_arguments(std::size_t step) const;

  std::shared_ptr<const BoundProgram> program_;
  std::vector<c10::IValue> frame_;
  std::vector<bool> is_weight_;  // per value
  std::vector<c10::IValue> stack_;
};

}  // namespace lowtide::exec
