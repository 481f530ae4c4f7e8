// The safetensors format: 8 bytes of header length, a JSON header padded with spaces, the tensors' bytes
// without gaps.
#pragma once

#include <c10/core/ScalarType.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tensor_file/byte_source.hpp"
#include "tensor_file/tensor_file.hpp"

namespace lowtide::tensor_file {

/// The format's name of an element type ("F32"), and back; nothing where the format has none.
std::optional<std::string_view> safetensors_dtype(c10::ScalarType type);
std::optional<c10::ScalarType> safetensors_scalar_type(std::string_view dtype);

std::vector<NamedTensor> read_safetensors(const InputFile& file);
std::vector<TensorEntry> read_safetensors_header(const InputFile& file);
std::map<std::string, std::string> read_safetensors_metadata(const InputFile& file);

}  // namespace lowtide::tensor_file
