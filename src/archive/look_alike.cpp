#include "archive/look_alike.hpp"

#include <algorithm>
#include <fstream>
#include <string_view>

#include "graph/quote.hpp"

namespace lowtide::archive {
namespace {

constexpr std::string_view kHowToExport =
    "; export the model with torch.export.save(torch.export.export(model, args), 'model.pt2')";

/// Empty for what is no regular file: opening a pipe would wait.
std::string head_of(const std::filesystem::path& path, std::size_t bytes) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return {};
  std::ifstream file(path, std::ios::binary);
  std::string head(bytes, '\0');
  file.read(head.data(), static_cast<std::streamsize>(bytes));
  head.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return head;
}

std::uint64_t little(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

/// An 8-byte length, then that much JSON.
bool is_safetensors(std::string_view head, std::uint64_t file_bytes) {
  return head.size() > 8 && head[8] == '{' && file_bytes >= 8 && little(head.substr(0, 8)) <= file_bytes - 8;
}

/// A protobuf that begins with field 1, the small version number, and goes on with another field of
/// ModelProto.
bool is_onnx(std::string_view head) {
  static constexpr std::string_view kNextFields = "\x12\x1a\x22\x28\x32\x3a\x42";
  return head.size() > 2 && head[0] == '\x08' && head[1] > 0 && head[1] < 32 &&
         kNextFields.find(head[2]) != std::string_view::npos;
}

bool any_starts_with(const std::vector<std::string>& names, std::string_view prefix) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return name.starts_with(prefix); });
}

bool contains(const std::vector<std::string>& names, std::string_view wanted) {
  return std::find(names.begin(), names.end(), wanted) != names.end();
}

}  // namespace

std::optional<std::string> look_alike_by_content(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return std::nullopt;
  const std::uint64_t file_bytes = std::filesystem::file_size(path, error);
  const std::string head = head_of(path, 16);
  if (error || head.size() < std::min<std::uint64_t>(file_bytes, 16)) return std::nullopt;
  const auto say = [](std::string_view what) { return std::string(what) + std::string(kHowToExport); };
  if (file_bytes == 0) return say("is empty");
  if (head.starts_with("PK\3\4")) return std::nullopt;
  if (head.starts_with("GGUF")) return say("is a GGUF file: weights without a program");
  if (head.starts_with("\x93NUMPY")) return say("is a NumPy array");
  if (head.starts_with("\x89HDF")) return say("is an HDF5 file");
  if (head[0] == '\x80' && head.size() > 1 && head[1] >= 2 && head[1] <= 5)
    return say("is a pickle (an old torch.save file)");
  if (is_safetensors(head, file_bytes)) return say("is a safetensors file: weights without a program");
  if (is_onnx(head)) return say("is an ONNX model");
  return say("is not an exported program (no zip archive)");
}

std::string look_alike_by_records(const std::vector<std::string>& names) {
  std::string what;
  if (any_starts_with(names, "data/aotinductor/")) {
    what = "is an AOTInductor package: compiled code for one machine";
  } else if (contains(names, "serialized_exported_program.json")) {
    what = "is an exported program of an older PyTorch; load and save it again with torch 2.11";
  } else if (contains(names, "constants.pkl") || any_starts_with(names, "code/")) {
    what = "is a TorchScript archive";
  } else if (contains(names, "data.pkl")) {
    what = "is a torch.save checkpoint: a pickle of weights or of a whole module";
  } else {
    what = "has no exported program (no record models/NAME.json)";
  }
  return what + std::string(kHowToExport);
}

std::optional<std::string> look_alike_by_first_entry(const std::filesystem::path& path) {
  static constexpr std::size_t kHeaderBytes = 30;
  const std::string head = head_of(path, 512);
  if (head.size() < kHeaderBytes || !head.starts_with("PK\3\4")) return std::nullopt;
  const std::string name = head.substr(kHeaderBytes, little(std::string_view(head).substr(26, 2)));
  if (name.ends_with(".npy")) return "is a NumPy .npz archive" + std::string(kHowToExport);
  if (name.find('/') == std::string::npos || name.starts_with("META-INF/")) {
    return "is a zip archive of something else (first entry " + graph::in_quotes(name) + ")" +
           std::string(kHowToExport);
  }
  return std::nullopt;
}

}  // namespace lowtide::archive
