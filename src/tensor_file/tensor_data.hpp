// From claimed element types and sizes to tensors: what all formats share.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tensor_file/byte_source.hpp"
#include "tensor_file/tensor_file.hpp"

namespace lowtide::tensor_file {

/// Bytes of a dense tensor; nothing when a size is negative, there are more than 64 dimensions, or 63 bit do
/// not hold it. Sizes of zero do not excuse the others: LibTorch multiplies those into strides.
std::optional<std::uint64_t> dense_bytes(std::span<const std::int64_t> sizes, c10::ScalarType type);

/// Uninitialised, row-major, on the CPU. InputError when there is not enough memory.
at::Tensor allocate(const InputFile& file, std::span<const std::int64_t> sizes, c10::ScalarType type);

/// Reads as many bytes as the dense `tensor` has into it.
void fill(at::Tensor& tensor, ByteSource& source);

/// allocate() and fill().
at::Tensor read_dense(ByteSource& source, std::span<const std::int64_t> sizes, c10::ScalarType type);

/// True for the 0-d integer and bool tensors whose value a TensorEntry carries.
bool has_integer(std::span<const std::int64_t> sizes, c10::ScalarType type);

/// An entry; `source`, at the tensor's data, is read only where has_integer() says so.
TensorEntry make_entry(std::string name, std::span<const std::int64_t> sizes, c10::ScalarType type,
                       ByteSource& source);

/// "0007": the name of a tensor known by its position.
std::string position_name(std::size_t position);

}  // namespace lowtide::tensor_file
