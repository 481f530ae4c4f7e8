// What the card must know about an operator beyond running it, read once from its schema.
#pragma once

#include <ATen/core/function_schema.h>

#include <cstdint>
#include <string>

namespace lowtide::device::sim {

struct OpTraits {
  explicit OpTraits(const c10::FunctionSchema& schema);

  std::string name;                // "aten::linear"
  bool writes = false;             // some argument is written in place
  bool synchronises = false;       // the host waits for the result: item(), sizes that depend on data
  std::uint64_t written = 0;       // bit i: argument i is written in place
  std::uint64_t host_allowed = 0;  // bit i: argument i may be a CPU tensor of any size

  bool is_written(std::size_t argument) const { return argument < 64 && (written >> argument & 1) != 0; }
  bool may_be_on_host(std::size_t argument) const {
    return argument < 64 && (host_allowed >> argument & 1) != 0;
  }
};

/// Does the operator take or return a tensor or a list of tensors?
bool touches_tensors(const c10::FunctionSchema& schema);
/// Does it take a tensor *and* a device (zeros_like, new_empty, to)? Its result may then live elsewhere.
bool chooses_device(const c10::FunctionSchema& schema);
/// Does it read no content and give no tensor (is_inference, size, result_type)?
bool asks_about_tensors(const c10::FunctionSchema& schema);

}  // namespace lowtide::device::sim
