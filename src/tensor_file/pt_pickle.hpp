// What torch.save's pickle says: which tensors there are and where in which storage their elements lie.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tensor_file/byte_source.hpp"
#include "tensor_file/pickle.hpp"

namespace lowtide::tensor_file {

/// A tensor as a view of a storage. Not checked against the storage's bytes.
struct PtTensor {
  std::string name;
  c10::ScalarType type = c10::ScalarType::Undefined;
  std::string storage_key;  // the storage's bytes are the member "ROOT/data/KEY"
  std::int64_t offset = 0;  // in elements
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;  // in elements, as many as sizes
};

/// Throws InputError naming `file` when the pickle holds anything but tensors.
std::vector<PtTensor> pt_tensors(const InputFile& file, const pickle::Value& root);

}  // namespace lowtide::tensor_file
