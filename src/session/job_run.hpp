// One job on its way through a model.
#pragma once

#include <ATen/core/Tensor.h>

#include <exception>
#include <variant>
#include <vector>

#include "exec/frame.hpp"
#include "residency/parked_values.hpp"
#include "residency/transfers.hpp"

namespace lowtide::detail {

/// On its way to the host, or there: undefined for None.
using JobOutput = std::variant<at::Tensor, residency::Download>;

struct JobRun {
  explicit JobRun(exec::Frame values) : frame(std::move(values)) {}

  exec::Frame frame;
  std::vector<at::Tensor> inputs;  // the caller's, until they are sent
  bool inputs_sent = false;
  std::vector<graph::ValueId> parked;  // values that wait in host memory, in the order of `parked_values`
  residency::ParkedValues parked_values;
  std::vector<JobOutput> outputs;  // in flattened order, when it has passed all steps
  std::exception_ptr error;

  /// Lets go of all that lies on the device for it.
  void drop_values() {
    frame.clear();
    parked.clear();
    parked_values = {};
    outputs.clear();
  }
  bool alive() const { return error == nullptr; }
  /// The device has been synchronised since the outputs were fetched.
  std::vector<at::Tensor> results() const {
    std::vector<at::Tensor> tensors;
    for (const JobOutput& output : outputs) {
      const auto* download = std::get_if<residency::Download>(&output);
      tensors.push_back(download != nullptr ? download->result() : std::get<at::Tensor>(output));
    }
    return tensors;
  }
};

}  // namespace lowtide::detail
