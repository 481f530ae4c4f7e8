// .pt files of torch.save that hold tensors and nothing else: one tensor, a list or tuple of them, or a dict
// from names to them.
#pragma once

#include <vector>

#include "tensor_file/byte_source.hpp"
#include "tensor_file/tensor_file.hpp"

namespace lowtide::tensor_file {

std::vector<NamedTensor> read_pt(const InputFile& file);
std::vector<TensorEntry> read_pt_header(const InputFile& file);

}  // namespace lowtide::tensor_file
