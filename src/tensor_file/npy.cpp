#include "tensor_file/npy.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "tensor_file/file_error.hpp"
#include "tensor_file/tensor_data.hpp"
#include "tensor_file/zip_reader.hpp"

namespace lowtide::tensor_file {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::string_view kExtension = ".npy";

/// Leaves `source` at the first byte of data, of which there are exactly as many as the header says.
NpyHeader read_array_header(ByteSource& source, const std::string& what) {
  constexpr std::uint32_t kLongestHeader = 1 << 20;
  const InputFile& file = source.file();
  std::array<char, 8> start{};
  if (source.remaining() < start.size()) file.fail_damaged(what + " is too short for an .npy array");
  source.read(start.data(), start.size());
  if (std::string_view(start.data(), kMagic.size()) != kMagic)
    file.fail(what + " is no .npy array", "write it with numpy.save");

  std::uint32_t length = 0;
  const int version = start[6];
  if (version < 1 || version > 3) {
    file.fail(what + " has .npy version " + std::to_string(version),
              "write it with numpy.save, which uses versions 1 to 3");
  }
  source.read(&length, version == 1 ? 2 : 4);
  if (length > source.remaining() || length > kLongestHeader)
    file.fail_damaged(what + " claims an array header longer than it is");
  std::string text(length, '\0');
  source.read(text.data(), text.size());

  NpyHeader header = parse_npy_header(file, what, text);
  const auto bytes = dense_bytes(header.sizes, header.type);
  if (!bytes || *bytes != source.remaining()) {
    file.fail_damaged(what + " has " + std::to_string(source.remaining()) +
                      " bytes of data, which its shape and dtype contradict");
  }
  return header;
}

at::Tensor read_array(ByteSource& source, const std::string& what) {
  NpyHeader header = read_array_header(source, what);
  if (!header.fortran_order || header.sizes.size() < 2) return read_dense(source, header.sizes, header.type);
  std::reverse(header.sizes.begin(), header.sizes.end());
  const at::Tensor reversed = read_dense(source, header.sizes, header.type);
  std::vector<std::int64_t> order(header.sizes.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(order.size() - 1 - i);
  return reversed.permute(order).contiguous();
}

struct Member {
  std::string name;  // without ".npy"
  std::string what;
  std::size_t index;
};

std::vector<Member> array_members(const ZipReader& zip) {
  std::vector<Member> members;
  std::unordered_set<std::string> names;
  for (std::size_t i = 0; i < zip.entries().size(); ++i) {
    const std::string& path = zip.entries()[i].name;
    std::string what = "member '" + printable(path) + "'";
    if (!path.ends_with(kExtension))
      zip.file().fail(what + " is no .npy array", "write the file with numpy.savez");
    std::string name = path.substr(0, path.size() - kExtension.size());
    if (!names.insert(name).second)
      zip.file().fail(what + " occurs twice", "give each array a name of its own");
    members.push_back({std::move(name), std::move(what), i});
  }
  return members;
}

}  // namespace

std::vector<NamedTensor> read_npy(const InputFile& file) {
  FileStretch source(file, 0, file.size());
  std::vector<NamedTensor> tensors;
  tensors.push_back({"", read_array(source, "it")});
  return tensors;
}

std::vector<TensorEntry> read_npy_header(const InputFile& file) {
  FileStretch source(file, 0, file.size());
  const NpyHeader header = read_array_header(source, "it");
  return {make_entry("", header.sizes, header.type, source)};
}

std::vector<NamedTensor> read_npz(const InputFile& file) {
  ZipReader zip(file);
  std::vector<NamedTensor> tensors;
  for (Member& member : array_members(zip)) {
    const auto source = zip.open(member.index);
    tensors.push_back({std::move(member.name), read_array(*source, member.what)});
  }
  return tensors;
}

std::vector<TensorEntry> read_npz_header(const InputFile& file) {
  ZipReader zip(file);
  std::vector<TensorEntry> entries;
  for (Member& member : array_members(zip)) {
    const auto source = zip.open(member.index);
    const NpyHeader header = read_array_header(*source, member.what);
    entries.push_back(make_entry(std::move(member.name), header.sizes, header.type, *source));
  }
  return entries;
}

}  // namespace lowtide::tensor_file
