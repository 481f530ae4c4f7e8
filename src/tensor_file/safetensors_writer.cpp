#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <numeric>
#include <system_error>
#include <unordered_set>

#include "lowtide/error.hpp"
#include "tensor_file/file_error.hpp"
#include "tensor_file/safetensors.hpp"
#include "tensor_file/tensor_file.hpp"

namespace lowtide::tensor_file {
namespace {

[[noreturn]] void fail_writing(const std::filesystem::path& path, const std::string& reason,
                               const std::string& remedy) {
  throw Error("cannot write '" + path.string() + "': " + reason + "; " + remedy);
}

class OutputFile {
 public:
  explicit OutputFile(const std::filesystem::path& path) : path_(path) {
    fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd_ < 0) fail();
  }
  ~OutputFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(const void* data, std::size_t size) {
    constexpr std::size_t kLargestWrite = std::size_t{1} << 30;
    const auto* from = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t put = ::write(fd_, from, std::min(size, kLargestWrite));
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) fail();
      from += put;
      size -= static_cast<std::size_t>(put);
    }
  }

  /// Some file systems report a full disk only here.
  void close() {
    const int fd = std::exchange(fd_, -1);
    if (::close(fd) != 0) fail();
  }

 private:
  [[noreturn]] void fail() const {
    fail_writing(path_, std::generic_category().message(errno), "check space, folder and permissions");
  }

  std::filesystem::path path_;
  int fd_;
};

/// Row-major on the CPU, without lazy conjugation or negation.
at::Tensor materialised(const at::Tensor& tensor) {
  return tensor.cpu().contiguous().resolve_conj().resolve_neg();
}

void check_tensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors) {
  std::unordered_set<std::string_view> names;
  for (const auto& [name, tensor] : tensors) {
    const std::string which = "tensor '" + printable(name) + "' ";
    if (name == "__metadata__")
      fail_writing(path, which + "has a name reserved by safetensors", "name it differently");
    if (!names.insert(name).second) fail_writing(path, which + "occurs twice", "give each a name of its own");
    if (!tensor.defined() || tensor.layout() != c10::kStrided) {
      fail_writing(path, which + "is not a dense tensor", "make it dense first");
    }
    if (!safetensors_dtype(tensor.scalar_type())) {
      fail_writing(path,
                   which + "has element type " + c10::toString(tensor.scalar_type()) +
                       ", which safetensors cannot hold",
                   "convert it first (complex128 to complex64, for instance)");
    }
  }
}

/// Largest elements first, so that every tensor starts at a multiple of its element size (readers view the
/// bytes in place).
std::vector<std::size_t> placement_order(std::span<const NamedTensor> tensors) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return tensors[a].tensor.element_size() > tensors[b].tensor.element_size();
  });
  return order;
}

std::string quoted(const std::filesystem::path& path, const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    fail_writing(path, "the name '" + printable(text) + "' is not UTF-8", "name it differently");
  }
}

std::string make_header(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                        const std::vector<std::size_t>& order,
                        const std::map<std::string, std::string>& metadata) {
  std::vector<std::uint64_t> begins(tensors.size());
  std::uint64_t offset = 0;
  for (const std::size_t i : order) {
    begins[i] = offset;
    offset += tensors[i].tensor.nbytes();
  }
  std::string fields;
  const auto add = [&](const std::string& key, const std::string& value) {
    fields += (fields.empty() ? "" : ",") + key + ":" + value;
  };
  if (!metadata.empty()) {
    std::string pairs;
    for (const auto& [key, value] : metadata) {
      pairs += (pairs.empty() ? "" : ",") + quoted(path, key) + ":" + quoted(path, value);
    }
    add("\"__metadata__\"", "{" + pairs + "}");
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i].tensor;
    const nlohmann::ordered_json description{
        {"dtype", *safetensors_dtype(tensor.scalar_type())},
        {"shape", std::vector<std::int64_t>(tensor.sizes().begin(), tensor.sizes().end())},
        {"data_offsets", {begins[i], begins[i] + tensor.nbytes()}}};
    add(quoted(path, tensors[i].name), description.dump());
  }
  std::string header = "{" + fields + "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');  // the data then starts at a multiple of 8
  return header;
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata) {
  check_tensors(path, tensors);
  const std::vector<std::size_t> order = placement_order(tensors);
  const std::string header = make_header(path, tensors, order, metadata);
  const std::uint64_t length = header.size();
  OutputFile file(path);
  file.write(&length, sizeof(length));
  file.write(header.data(), header.size());
  for (const std::size_t i : order) {
    const at::Tensor tensor = materialised(tensors[i].tensor);
    file.write(tensor.const_data_ptr(), tensor.nbytes());
  }
  file.close();
}

}  // namespace lowtide::tensor_file
