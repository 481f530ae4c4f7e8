#include "tensor_file/tensor_file.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "tensor_file/byte_source.hpp"
#include "tensor_file/npy.hpp"
#include "tensor_file/pt_file.hpp"
#include "tensor_file/safetensors.hpp"

namespace lowtide::tensor_file {
namespace {

struct Format {
  std::string_view extension;
  std::vector<NamedTensor> (*tensors)(const InputFile&);
  std::vector<TensorEntry> (*header)(const InputFile&);
};

constexpr std::array<Format, 4> kFormats{{
    {".safetensors", read_safetensors, read_safetensors_header},
    {".npy", read_npy, read_npy_header},
    {".npz", read_npz, read_npz_header},
    {".pt", read_pt, read_pt_header},
}};

const Format* find_format(const std::filesystem::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  for (const Format& format : kFormats) {
    if (format.extension == extension) return &format;
  }
  return nullptr;
}

const Format& format_of(const InputFile& file) {
  const Format* format = find_format(file.path());
  if (format == nullptr)
    file.fail("its extension is none of .safetensors, .npy, .npz, .pt", "convert it or rename it");
  return *format;
}

}  // namespace

bool is_tensor_file(const std::filesystem::path& path) {
  return find_format(path) != nullptr;
}

std::vector<NamedTensor> read_tensors(const std::filesystem::path& path) {
  const InputFile file(path);
  return format_of(file).tensors(file);
}

std::vector<TensorEntry> read_header(const std::filesystem::path& path) {
  const InputFile file(path);
  return format_of(file).header(file);
}

std::map<std::string, std::string> read_metadata(const std::filesystem::path& path) {
  const InputFile file(path);
  return format_of(file).tensors == read_safetensors ? read_safetensors_metadata(file)
                                                     : std::map<std::string, std::string>{};
}

}  // namespace lowtide::tensor_file
