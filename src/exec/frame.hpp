// The values of one job while it runs.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <unordered_map>
#include <vector>

#include "graph/graph.hpp"

namespace lowtide::exec {

/// Inputs, intermediate results and outputs by value id; weights are the executor's. Not thread-safe.
class Frame {
 public:
  explicit Frame(std::size_t values) : values_(values) {}

  c10::IValue& operator[](graph::ValueId value) { return values_[value]; }
  const c10::IValue& operator[](graph::ValueId value) const { return values_[value]; }
  std::size_t size() const { return values_.size(); }

  /// The caller's tensor for an input that lives on the device, for operators that run on the host.
  void keep_on_host(graph::ValueId value, at::Tensor tensor) { on_host_[value] = std::move(tensor); }
  /// Undefined when there is none.
  at::Tensor on_host(graph::ValueId value) const {
    const auto found = on_host_.find(value);
    return found == on_host_.end() ? at::Tensor() : found->second;
  }

  void clear() {
    for (c10::IValue& value : values_) value = c10::IValue();
    on_host_.clear();
  }

 private:
  std::vector<c10::IValue> values_;
  std::unordered_map<graph::ValueId, at::Tensor> on_host_;
};

}  // namespace lowtide::exec
