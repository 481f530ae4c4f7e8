#include "tensor_file/safetensors.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "tensor_file/file_error.hpp"
#include "tensor_file/tensor_data.hpp"

namespace lowtide::tensor_file {
namespace {

using c10::ScalarType;
using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "all formats here are little-endian");

constexpr std::uint64_t kLengthBytes = 8;
// The reference implementation allows 100 MB, a hundred thousand tensors take about 10.
constexpr std::uint64_t kLargestHeader = 32 * 1024 * 1024;
constexpr const char* kMetadataKey = "__metadata__";

constexpr std::array<std::pair<std::string_view, ScalarType>, 18> kDtypes{{
    {"F64", ScalarType::Double},
    {"F32", ScalarType::Float},
    {"F16", ScalarType::Half},
    {"BF16", ScalarType::BFloat16},
    {"I64", ScalarType::Long},
    {"I32", ScalarType::Int},
    {"I16", ScalarType::Short},
    {"I8", ScalarType::Char},
    {"U8", ScalarType::Byte},
    {"BOOL", ScalarType::Bool},
    {"F8_E4M3", ScalarType::Float8_e4m3fn},
    {"F8_E5M2", ScalarType::Float8_e5m2},
    {"F8_E4M3FNUZ", ScalarType::Float8_e4m3fnuz},
    {"F8_E5M2FNUZ", ScalarType::Float8_e5m2fnuz},
    {"U16", ScalarType::UInt16},
    {"U32", ScalarType::UInt32},
    {"U64", ScalarType::UInt64},
    {"C64", ScalarType::ComplexFloat},
}};

struct Header {
  json root;                       // an object
  std::vector<std::string> names;  // its keys in the file's order, each once
  std::uint64_t data_begin = 0;    // of the file
};

/// A tensor's place, checked: begin <= end <= file size, end - begin == bytes of the sizes.
struct Record {
  std::string name;
  ScalarType type;
  std::vector<std::int64_t> sizes;
  std::uint64_t begin;  // of the file
  std::uint64_t end;
};

std::string read_header_text(const InputFile& file) {
  std::uint64_t length = 0;
  if (file.size() < kLengthBytes)
    file.fail_damaged("it is " + std::to_string(file.size()) + " bytes long, too short for safetensors");
  file.read_at(0, &length, sizeof(length));
  if (length > file.size() - kLengthBytes) {
    file.fail_damaged("its header claims " + std::to_string(length) + " bytes, the file has " +
                      std::to_string(file.size()));
  }
  if (length > kLargestHeader) {
    file.fail("its header of " + std::to_string(length) + " bytes is larger than 32 MiB",
              "split the tensors over several files");
  }
  std::string text(length, '\0');
  file.read_at(kLengthBytes, text.data(), text.size());
  return text;
}

Header parse_header(const InputFile& file) {
  constexpr int kDeepest = 3;  // object of tensors > object of fields > list of numbers
  const std::string text = read_header_text(file);
  Header header;
  std::unordered_set<std::string> seen;
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > kDeepest) file.fail_damaged("its header is nested too deep");
    if (event == json::parse_event_t::key && depth == 1) {
      const auto& name = parsed.get_ref<const std::string&>();
      if (!seen.insert(name).second)
        file.fail("it has two tensors named '" + printable(name) + "'", "give each a name of its own");
      if (name != kMetadataKey) header.names.push_back(name);
    }
    return true;
  };
  try {
    header.root = json::parse(text, watch);
  } catch (const json::parse_error& error) {
    file.fail_damaged("its header is no JSON (byte " + std::to_string(error.byte) + ")");
  } catch (const json::exception&) {
    file.fail_damaged("its header is no JSON");
  }
  if (!header.root.is_object()) file.fail_damaged("its header is no JSON object");
  header.data_begin = kLengthBytes + text.size();
  return header;
}

/// A list of non-negative integers below 2^63, or nothing.
std::optional<std::vector<std::int64_t>> integer_list(const json& object, const char* key) {
  const auto list = object.find(key);
  if (list == object.end() || !list->is_array()) return std::nullopt;
  std::vector<std::int64_t> numbers;
  for (const json& number : *list) {
    if (!number.is_number_unsigned() || number.get<std::uint64_t>() > INT64_MAX) return std::nullopt;
    numbers.push_back(number.get<std::int64_t>());
  }
  return numbers;
}

Record parse_record(const InputFile& file, const Header& header, const std::string& name) {
  const auto damaged = [&](const std::string& reason) {
    file.fail_damaged("tensor '" + printable(name) + "' " + reason);
  };
  const json& object = header.root.at(name);
  if (!object.is_object()) damaged("is not described by an object");

  const auto dtype = object.find("dtype");
  if (dtype == object.end() || !dtype->is_string()) damaged("has no dtype");
  const auto& dtype_text = dtype->get_ref<const std::string&>();
  const auto type = safetensors_scalar_type(dtype_text);
  if (!type) {
    file.fail("tensor '" + printable(name) + "' has the unknown dtype '" + printable(dtype_text) + "'",
              "convert it to one of F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL F8_E4M3 F8_E5M2 U16 U32 U64 C64");
  }
  auto sizes = integer_list(object, "shape");
  if (!sizes) damaged("has no valid shape");
  const auto offsets = integer_list(object, "data_offsets");
  if (!offsets || offsets->size() != 2) damaged("has no valid data_offsets");

  const auto begin = static_cast<std::uint64_t>((*offsets)[0]);
  const auto end = static_cast<std::uint64_t>((*offsets)[1]);
  const std::uint64_t data_bytes = file.size() - header.data_begin;
  if (begin > end || end > data_bytes) {
    damaged("lies at bytes " + std::to_string(begin) + " to " + std::to_string(end) + " of " +
            std::to_string(data_bytes));
  }
  const auto bytes = dense_bytes(*sizes, *type);
  if (!bytes || *bytes != end - begin)
    damaged("has " + std::to_string(end - begin) + " bytes, which its shape and dtype contradict");
  return {name, *type, std::move(*sizes), header.data_begin + begin, header.data_begin + end};
}

/// Tensors must cover the data without gap and overlap, as the format demands: nothing can hide in a file,
/// and nothing is read twice.
void check_coverage(const InputFile& file, const Header& header, const std::vector<Record>& records) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> stretches;
  for (const Record& record : records) stretches.emplace_back(record.begin, record.end);
  std::sort(stretches.begin(), stretches.end());
  std::uint64_t covered = header.data_begin;
  for (const auto& [begin, end] : stretches) {
    if (begin != covered)
      file.fail_damaged(begin < covered ? "two tensors overlap" : "there is a gap between two tensors");
    covered = end;
  }
  if (covered != file.size())
    file.fail_damaged(std::to_string(file.size() - covered) + " bytes at its end belong to no tensor");
}

std::vector<Record> parse_records(const InputFile& file) {
  const Header header = parse_header(file);
  std::vector<Record> records;
  for (const std::string& name : header.names) records.push_back(parse_record(file, header, name));
  check_coverage(file, header, records);
  return records;
}

}  // namespace

std::optional<std::string_view> safetensors_dtype(ScalarType type) {
  for (const auto& [name, known] : kDtypes) {
    if (known == type) return name;
  }
  return std::nullopt;
}

std::optional<ScalarType> safetensors_scalar_type(std::string_view dtype) {
  for (const auto& [name, type] : kDtypes) {
    if (name == dtype) return type;
  }
  return std::nullopt;
}

std::vector<NamedTensor> read_safetensors(const InputFile& file) {
  std::vector<NamedTensor> tensors;
  for (Record& record : parse_records(file)) {
    FileStretch data(file, record.begin, record.end);
    at::Tensor tensor = read_dense(data, record.sizes, record.type);
    tensors.push_back({std::move(record.name), std::move(tensor)});
  }
  return tensors;
}

std::vector<TensorEntry> read_safetensors_header(const InputFile& file) {
  std::vector<TensorEntry> entries;
  for (Record& record : parse_records(file)) {
    FileStretch data(file, record.begin, record.end);
    entries.push_back(make_entry(std::move(record.name), record.sizes, record.type, data));
  }
  return entries;
}

std::map<std::string, std::string> read_safetensors_metadata(const InputFile& file) {
  const Header header = parse_header(file);
  std::map<std::string, std::string> metadata;
  const auto object = header.root.find(kMetadataKey);
  if (object == header.root.end()) return metadata;
  if (!object->is_object()) file.fail_damaged("its __metadata__ is no JSON object");
  for (const auto& [key, value] : object->items()) {
    if (!value.is_string()) file.fail_damaged("its __metadata__ '" + printable(key) + "' is no text");
    metadata.emplace(key, value.get<std::string>());
  }
  return metadata;
}

}  // namespace lowtide::tensor_file
