// NumPy's .npy (versions 1 to 3) and .npz (a zip of those).
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tensor_file/byte_source.hpp"
#include "tensor_file/tensor_file.hpp"

namespace lowtide::tensor_file {

std::vector<NamedTensor> read_npy(const InputFile& file);
std::vector<TensorEntry> read_npy_header(const InputFile& file);

std::vector<NamedTensor> read_npz(const InputFile& file);
std::vector<TensorEntry> read_npz_header(const InputFile& file);

/// The text of an .npy header: a Python dict of exactly these three.
struct NpyHeader {
  c10::ScalarType type = c10::ScalarType::Undefined;
  bool fortran_order = false;
  std::vector<std::int64_t> sizes;
};

/// `what` names the array in messages ("it", "member 'x.npy'").
NpyHeader parse_npy_header(const InputFile& file, const std::string& what, std::string_view text);

}  // namespace lowtide::tensor_file
