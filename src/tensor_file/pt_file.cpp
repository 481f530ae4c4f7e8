#include "tensor_file/pt_file.hpp"

#include <ATen/ops/as_strided.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/checked_math.hpp"
#include "lowtide/bytes.hpp"
#include "tensor_file/file_error.hpp"
#include "tensor_file/pickle.hpp"
#include "tensor_file/pt_pickle.hpp"
#include "tensor_file/tensor_data.hpp"
#include "tensor_file/zip_reader.hpp"

namespace lowtide::tensor_file {
namespace {

constexpr std::uint64_t kLargestPickle = 64_MiB;
// Expanded tensors and tensors that share a storage become row-major copies: a few bytes could turn into
// terabytes.
constexpr std::uint64_t kMostCopiedBytes = 1_GiB;

/// The members of a torch.save archive: "ROOT/data.pkl" and the storages "ROOT/data/KEY".
class PtArchive {
 public:
  explicit PtArchive(const InputFile& file) : zip_((check_magic(file), file)) {
    for (std::size_t i = 0; i < zip_.entries().size(); ++i) {
      const std::string& name = zip_.entries()[i].name;
      if (!members_.emplace(name, i).second)
        file.fail_damaged("member '" + printable(name) + "' occurs twice");
      const std::size_t slash = name.find('/');
      if (slash != std::string::npos && name.substr(slash) == "/data.pkl") root_ = name.substr(0, slash);
      if (slash != std::string::npos && name.substr(slash) == "/constants.pkl") {
        file.fail("it is a TorchScript module", "save tensors with torch.save(dict_of_tensors, path)");
      }
    }
    if (!root_)
      file.fail("it is a zip without the data of torch.save",
                "save tensors with torch.save(dict_of_tensors, path)");
    check_byte_order();
  }

  const InputFile& file() const { return zip_.file(); }

  std::vector<PtTensor> tensors() const {
    const std::string text = member_text("data.pkl", kLargestPickle);
    try {
      return pt_tensors(file(), pickle::Pickle(text).root());
    } catch (const pickle::PickleError& error) {
      file().fail(std::string("its data.pkl cannot be read as tensors: ") + error.what(),
                  "save tensors only, with torch.save");
    }
  }

  std::unique_ptr<ByteSource> open_storage(const std::string& key) const {
    const auto found = members_.find(*root_ + "/data/" + key);
    if (found == members_.end()) file().fail_damaged("storage '" + printable(key) + "' is missing");
    return zip_.open(found->second);
  }

 private:
  static void check_magic(const InputFile& file) {
    std::array<char, 2> start{};
    if (file.size() < start.size()) file.fail_damaged("it is too short for a .pt file");
    file.read_at(0, start.data(), start.size());
    if (std::string_view(start.data(), start.size()) == "PK") return;
    file.fail("it is no zip archive (the format of torch.save before 1.6, or something else)",
              "save it again with a current torch.save, or as .safetensors");
  }

  std::string member_text(const std::string& name, std::uint64_t most) const {
    const auto source = zip_.open(members_.at(*root_ + "/" + name));
    if (source->remaining() > most)
      file().fail(name + " is larger than " + format_bytes(most), "save fewer tensors a file");
    std::string text(source->remaining(), '\0');
    source->read(text.data(), text.size());
    return text;
  }

  void check_byte_order() const {
    constexpr std::uint64_t kLongestWord = 16;
    if (members_.contains(*root_ + "/byteorder") && member_text("byteorder", kLongestWord) != "little") {
      file().fail("it is not little-endian", "save it on a little-endian machine");
    }
  }

  ZipReader zip_;
  std::unordered_map<std::string, std::size_t> members_;
  std::optional<std::string> root_;
};

/// One past the last element that a view touches, or nothing when it is malformed or leaves 63 bit.
std::optional<std::int64_t> view_end(const PtTensor& view) {
  if (view.offset < 0) return std::nullopt;
  std::optional<std::int64_t> last = view.offset;
  bool empty = false;
  for (std::size_t i = 0; i < view.sizes.size(); ++i) {
    if (view.sizes[i] < 0 || view.strides[i] < 0) return std::nullopt;
    if (view.sizes[i] == 0) empty = true;
    if (view.sizes[i] <= 1) continue;
    const auto step = checked_mul(view.sizes[i] - 1, view.strides[i]);
    if (!step) return std::nullopt;
    last = checked_add(*last, *step);
    if (!last) return std::nullopt;
  }
  return empty ? view.offset : checked_add<std::int64_t>(*last, 1);
}

/// Bytes of the dense tensor. Fails when the view leaves its storage of `storage_bytes`.
std::uint64_t check_view(const InputFile& file, const PtTensor& view, std::uint64_t storage_bytes) {
  const auto bytes = dense_bytes(view.sizes, view.type);
  const auto end = view_end(view);
  const auto elements = static_cast<std::int64_t>(storage_bytes / c10::elementSize(view.type));
  if (!bytes || !end || *end > elements) {
    file.fail_damaged("tensor '" + printable(view.name) + "' leaves its storage of " +
                      std::to_string(storage_bytes) + " bytes");
  }
  return *bytes;
}

/// Reads each storage once and makes dense tensors from the views into it.
class PtLoader {
 public:
  explicit PtLoader(const PtArchive& archive) : archive_(archive) {}

  at::Tensor load(const PtTensor& view) {
    const at::Tensor& whole = storage(view);
    const std::uint64_t bytes = check_view(archive_.file(), view, whole.nbytes());
    copied_bytes_ = checked_add(copied_bytes_, bytes).value_or(UINT64_MAX);
    if (copied_bytes_ > kMostCopiedBytes && copied_bytes_ - kMostCopiedBytes > stored_bytes_) {
      archive_.file().fail("its tensors take " + format_bytes(copied_bytes_) + " but share " +
                               format_bytes(stored_bytes_) + " of data",
                           "save them without expand(), one storage each");
    }
    if (bytes == 0) return allocate(archive_.file(), view.sizes, view.type);
    at::Tensor dense = allocate(archive_.file(), view.sizes, view.type);
    return dense.copy_(at::as_strided(whole, view.sizes, view.strides, view.offset));
  }

 private:
  const at::Tensor& storage(const PtTensor& view) {
    const auto found = storages_.find(view.storage_key);
    if (found != storages_.end()) {
      if (found->second.scalar_type() == view.type) return found->second;
      archive_.file().fail("tensors of two element types share storage '" + printable(view.storage_key) + "'",
                           "clone() them before saving");
    }
    const auto source = archive_.open_storage(view.storage_key);
    const auto elements = static_cast<std::int64_t>(source->remaining() / c10::elementSize(view.type));
    at::Tensor whole = read_dense(*source, std::array{elements}, view.type);
    stored_bytes_ += whole.nbytes();
    return storages_.emplace(view.storage_key, std::move(whole)).first->second;
  }

  const PtArchive& archive_;
  std::unordered_map<std::string, at::Tensor> storages_;  // 1-d, all elements
  std::uint64_t stored_bytes_ = 0;
  std::uint64_t copied_bytes_ = 0;
};

}  // namespace

std::vector<NamedTensor> read_pt(const InputFile& file) {
  const PtArchive archive(file);
  PtLoader loader(archive);
  std::vector<NamedTensor> tensors;
  for (const PtTensor& view : archive.tensors()) tensors.push_back({view.name, loader.load(view)});
  return tensors;
}

std::vector<TensorEntry> read_pt_header(const InputFile& file) {
  const PtArchive archive(file);
  std::vector<TensorEntry> entries;
  for (const PtTensor& view : archive.tensors()) {
    const auto source = archive.open_storage(view.storage_key);
    check_view(file, view, source->remaining());
    if (has_integer(view.sizes, view.type)) {
      std::string before(static_cast<std::size_t>(view.offset) * c10::elementSize(view.type), '\0');
      source->read(before.data(), before.size());
    }
    entries.push_back(make_entry(view.name, view.sizes, view.type, *source));
  }
  return entries;
}

}  // namespace lowtide::tensor_file
