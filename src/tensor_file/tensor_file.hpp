// Named tensors in files: .safetensors, .npy, .npz and .pt (tensors only) are read, .safetensors is written.
//
// Files are treated as hostile. Every size and offset is checked before it is used, nothing in a file is
// executed, and memory is taken only for data that the file really has. Errors are InputError, one line
// naming file, reason and remedy. All functions may be called from several threads at once.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/dtype.hpp"
#include "lowtide/named_tensor.hpp"

namespace lowtide::tensor_file {

using lowtide::NamedTensor;  // the name is empty where the file has none

/// What a file says about a tensor, without its data.
struct TensorEntry {
  std::string name;
  graph::DType dtype =
      graph::DType::unknown;  // `unknown` also for u32 and u64, which no exported program takes
  std::vector<std::int64_t> sizes;
  /// Value of a 0-d integer or bool tensor: it may feed a symbolic integer.
  std::optional<std::int64_t> integer;

  bool operator==(const TensorEntry&) const = default;
};

/// True for the extensions .safetensors, .npy, .npz and .pt (in lower or upper case). The file need not
/// exist.
bool is_tensor_file(const std::filesystem::path& path);

/// All tensors of the file, in the file's order, as row-major CPU tensors with memory of their own. Names:
/// the file's; "" for the array of an .npy and a lone tensor in a .pt; "0000", "0001"... for a list or tuple
/// in a .pt.
std::vector<NamedTensor> read_tensors(const std::filesystem::path& path);

/// Names, element types and sizes only, for planning: reads headers, not data (but decompresses the start of
/// each .npz member).
std::vector<TensorEntry> read_header(const std::filesystem::path& path);

/// The free text of a .safetensors file ("__metadata__"); empty where it has none and for the other formats.
std::map<std::string, std::string> read_metadata(const std::filesystem::path& path);

/// Writes `path` as a whole, replacing what was there; not atomic, so write to a temporary and rename.
/// Tensors are moved to the CPU and written row-major; names keep their order. Throws Error (disk full, no
/// permission, element type without a safetensors name, duplicate name); `path` may then hold a part.
void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace lowtide::tensor_file
