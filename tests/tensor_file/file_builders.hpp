// Files of each format, byte by byte, so that tests can also build what no writer would write.
#pragma once

#include <zip.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "temp_dir.hpp"

namespace lowtide::test {

template <class T>
std::string bytes_of(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  std::string bytes;
  for (const T value : values) bytes += bytes_of(value);
  return bytes;
}

inline std::string safetensors_bytes(const std::string& header, const std::string& data) {
  return bytes_of<std::uint64_t>(header.size()) + header + data;
}

inline std::string npy_bytes(const std::string& header, const std::string& data, char version = 1) {
  const std::string length = version == 1 ? bytes_of(static_cast<std::uint16_t>(header.size()))
                                          : bytes_of(static_cast<std::uint32_t>(header.size()));
  return std::string("\x93NUMPY") + version + '\0' + length + header + data;
}

inline std::string npy_array(const std::string& descr, const std::string& shape, const std::string& data) {
  return npy_bytes("{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }\n", data);
}

using Members = std::vector<std::pair<std::string, std::string>>;

inline void write_zip(const std::filesystem::path& path, const Members& members, bool deflate = false) {
  std::filesystem::remove(path);
  int error = 0;
  zip_t* archive = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &error);
  if (archive == nullptr) throw std::runtime_error("zip_open failed");
  for (const auto& [name, bytes] : members) {
    zip_source_t* source = zip_source_buffer(archive, bytes.data(), bytes.size(), 0);
    const zip_int64_t index = zip_file_add(archive, name.c_str(), source, ZIP_FL_ENC_UTF_8);
    if (index < 0) throw std::runtime_error("zip_file_add failed");
    zip_set_file_compression(archive, static_cast<zip_uint64_t>(index),
                             deflate ? ZIP_CM_DEFLATE : ZIP_CM_STORE, 0);
  }
  if (zip_close(archive) != 0) throw std::runtime_error("zip_close failed");
}

/// Opcodes of pickle protocol 2, as torch.save writes them.
namespace pickled {
inline std::string text(const std::string& value) {
  return "X" + bytes_of(static_cast<std::uint32_t>(value.size())) + value;
}
inline std::string integer(std::int64_t value) {
  return std::string("\x8a\x08") + bytes_of(value);
}
inline std::string global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
inline std::string tuple(const std::vector<std::string>& items) {
  std::string bytes = "(";
  for (const std::string& item : items) bytes += item;
  return bytes + "t";
}
inline std::string integers(const std::vector<std::int64_t>& values) {
  std::vector<std::string> items;
  for (const std::int64_t value : values) items.push_back(integer(value));
  return tuple(items);
}
inline std::string call(const std::string& callable, const std::vector<std::string>& arguments) {
  return callable + tuple(arguments) + "R";
}
inline std::string tensor(const std::string& storage, const std::string& key, std::int64_t offset,
                          const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& strides) {
  const std::string id =
      tuple({text("storage"), global("torch", storage), text(key), text("cpu"), integer(0)}) + "Q";
  return call(global("torch._utils", "_rebuild_tensor_v2"),
              {id, integer(offset), integers(sizes), integers(strides), "\x89",
               call(global("collections", "OrderedDict"), {})});
}
inline std::string dict(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string bytes = "}(";
  for (const auto& [key, value] : entries) bytes += text(key) + value;
  return bytes + "u";
}
inline std::string program(const std::string& value) {
  return "\x80\x02" + value + ".";
}
}  // namespace pickled

/// A torch.save archive of `value` with the given storages.
inline void write_pt(const std::filesystem::path& path, const std::string& value, const Members& storages) {
  Members members{{"root/data.pkl", pickled::program(value)}, {"root/byteorder", "little"}};
  for (const auto& [key, bytes] : storages) members.emplace_back("root/data/" + key, bytes);
  write_zip(path, members);
}

}  // namespace lowtide::test
