#include "tensor_file/pt_pickle.hpp"

#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "tensor_file/file_error.hpp"
#include "tensor_file/tensor_data.hpp"

namespace lowtide::tensor_file {
namespace {

using c10::ScalarType;
using pickle::Kind;
using pickle::Value;

struct TypeName {
  std::string_view storage;  // torch.FloatStorage: the typed storages that torch.save still writes
  std::string_view dtype;    // torch.float32: beside untyped storages
  ScalarType type;
};

constexpr std::array<TypeName, 18> kTypes{{
    {"torch.DoubleStorage", "torch.float64", ScalarType::Double},
    {"torch.FloatStorage", "torch.float32", ScalarType::Float},
    {"torch.HalfStorage", "torch.float16", ScalarType::Half},
    {"torch.BFloat16Storage", "torch.bfloat16", ScalarType::BFloat16},
    {"torch.LongStorage", "torch.int64", ScalarType::Long},
    {"torch.IntStorage", "torch.int32", ScalarType::Int},
    {"torch.ShortStorage", "torch.int16", ScalarType::Short},
    {"torch.CharStorage", "torch.int8", ScalarType::Char},
    {"torch.ByteStorage", "torch.uint8", ScalarType::Byte},
    {"torch.BoolStorage", "torch.bool", ScalarType::Bool},
    {"torch.ComplexFloatStorage", "torch.complex64", ScalarType::ComplexFloat},
    {"torch.ComplexDoubleStorage", "torch.complex128", ScalarType::ComplexDouble},
    {"", "torch.uint16", ScalarType::UInt16},
    {"", "torch.uint32", ScalarType::UInt32},
    {"", "torch.uint64", ScalarType::UInt64},
    {"", "torch.float8_e4m3fn", ScalarType::Float8_e4m3fn},
    {"", "torch.float8_e5m2", ScalarType::Float8_e5m2},
    {"", "torch.complex32", ScalarType::ComplexHalf},
}};

constexpr const char* kRemedy = "save tensors only: one, a list, or a dict from names to tensors";

std::optional<ScalarType> type_of_storage(std::string_view name) {
  for (const TypeName& known : kTypes) {
    if (!known.storage.empty() && known.storage == name) return known.type;
  }
  return std::nullopt;
}

std::optional<ScalarType> type_of_dtype(std::string_view name) {
  for (const TypeName& known : kTypes) {
    if (known.dtype == name) return known.type;
  }
  return std::nullopt;
}

std::optional<std::vector<std::int64_t>> integers(const Value& tuple) {
  if (tuple.kind != Kind::tuple) return std::nullopt;
  std::vector<std::int64_t> numbers;
  for (const Value* item : tuple.items) {
    if (item->kind != Kind::integer) return std::nullopt;
    numbers.push_back(item->integer);
  }
  return numbers;
}

/// The function of a call; empty when it is no call of a global.
std::string_view callee(const Value& value) {
  if (value.kind != Kind::call || value.items[0]->kind != Kind::global) return {};
  return value.items[0]->text;
}

/// The arguments of a call; empty when they are no tuple.
std::span<const Value* const> arguments(const Value& call) {
  const Value& tuple = *call.items[1];
  if (tuple.kind != Kind::tuple) return {};
  return tuple.items;
}

std::string shown(const std::string& name) {
  return name.empty() ? "it" : "'" + printable(name) + "'";
}

class PtReader {
 public:
  explicit PtReader(const InputFile& file) : file_(file) {}

  std::vector<PtTensor> read(const Value& root);

 private:
  PtTensor tensor(const Value& value, const std::string& name);
  PtTensor rebuilt_tensor(const Value& call, const std::string& name);
  /// Key and element type; no type for an untyped storage.
  std::pair<std::string, std::optional<ScalarType>> storage(const Value& value);
  std::vector<PtTensor> from_list(std::span<const Value* const> items);
  std::vector<PtTensor> from_dict(std::span<const Value* const> items);

  [[noreturn]] void fail_foreign(const Value& value, const std::string& name) const {
    const std::string where = shown(name);
    const std::string_view function = callee(value);
    const std::string global = function.empty() ? value.text : std::string(function);
    if (value.kind == Kind::call || value.kind == Kind::global) {
      file_.fail(where + " holds an object of Python (" + printable(global) + ")", kRemedy);
    }
    file_.fail(where + " is no tensor", kRemedy);
  }

  const InputFile& file_;
};

std::pair<std::string, std::optional<ScalarType>> PtReader::storage(const Value& value) {
  // ('storage', torch.FloatStorage, key, location, number of elements)
  const Value* id = value.kind == Kind::persistent ? value.items[0] : nullptr;
  const bool well_formed = id != nullptr && id->kind == Kind::tuple && id->items.size() == 5 &&
                           id->items[0]->text == "storage" && id->items[1]->kind == Kind::global &&
                           id->items[2]->kind == Kind::text;
  if (!well_formed) file_.fail_damaged("a tensor in it has no storage");
  const std::string& type_name = id->items[1]->text;
  const auto type = type_of_storage(type_name);
  if (!type && type_name != "torch.storage.UntypedStorage" && type_name != "torch.UntypedStorage") {
    file_.fail("it has elements of type " + printable(type_name),
               "convert them to a plain type before saving");
  }
  return {id->items[2]->text, type};
}

PtTensor PtReader::rebuilt_tensor(const Value& call, const std::string& name) {
  // v2: (storage, offset, size, stride, requires_grad, hooks[, metadata]); v3 has the dtype before metadata
  const bool has_dtype = callee(call) == "torch._utils._rebuild_tensor_v3";
  const auto args = arguments(call);
  const std::size_t plain = has_dtype ? 7 : 6;
  if (args.size() < plain || args.size() > plain + 1)
    file_.fail_damaged("a tensor in it has the wrong number of fields");
  if (args.size() > plain && !args[plain]->items.empty()) {
    file_.fail(shown(name) + " is a lazily conjugated or negated tensor",
               "call .resolve_conj().resolve_neg() before saving");
  }
  const auto [key, storage_type] = storage(*args[0]);
  const auto type = has_dtype ? type_of_dtype(args[6]->text) : storage_type;
  if (!type)
    file_.fail(shown(name) + " has an unknown element type", "convert it to a plain type before saving");
  auto sizes = integers(*args[2]);
  auto strides = integers(*args[3]);
  if (args[1]->kind != Kind::integer || !sizes || !strides || sizes->size() != strides->size()) {
    file_.fail_damaged("a tensor in it has malformed sizes or strides");
  }
  return {name, *type, key, args[1]->integer, std::move(*sizes), std::move(*strides)};
}

PtTensor PtReader::tensor(const Value& value, const std::string& name) {
  const Value* plain = &value;
  if (callee(value) == "torch._utils._rebuild_parameter" && !arguments(value).empty())
    plain = arguments(value)[0];
  const std::string_view function = callee(*plain);
  if (function != "torch._utils._rebuild_tensor_v2" && function != "torch._utils._rebuild_tensor_v3")
    fail_foreign(*plain, name);
  return rebuilt_tensor(*plain, name);
}

std::vector<PtTensor> PtReader::from_list(std::span<const Value* const> items) {
  std::vector<PtTensor> tensors;
  for (std::size_t i = 0; i < items.size(); ++i) tensors.push_back(tensor(*items[i], position_name(i)));
  return tensors;
}

std::vector<PtTensor> PtReader::from_dict(std::span<const Value* const> items) {
  std::vector<PtTensor> tensors;
  std::unordered_set<std::string_view> names;
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    if (items[i]->kind != Kind::text) file_.fail("a key of its dict is no text", kRemedy);
    const std::string& name = items[i]->text;
    if (!names.insert(name).second) file_.fail_damaged("it has two tensors named '" + printable(name) + "'");
    tensors.push_back(tensor(*items[i + 1], name));
  }
  return tensors;
}

std::vector<PtTensor> PtReader::read(const Value& root) {
  const Value* value = &root;
  // LibTorch's pickler wraps lists and dicts to remember their static type.
  if (callee(*value) == "torch.jit._pickle.restore_type_tag" && !arguments(*value).empty())
    value = arguments(*value)[0];
  const std::span<const Value* const> items = value->items;
  if (value->kind == Kind::dict) return from_dict(items);
  if (value->kind == Kind::list || value->kind == Kind::tuple) return from_list(items);
  // A state dict is an OrderedDict: a call without arguments, filled afterwards, with a note of versions as
  // its state.
  if (callee(*value) == "collections.OrderedDict" && arguments(*value).empty())
    return from_dict(items.subspan(2));
  return {tensor(*value, "")};
}

}  // namespace

std::vector<PtTensor> pt_tensors(const InputFile& file, const pickle::Value& root) {
  return PtReader(file).read(root);
}

}  // namespace lowtide::tensor_file
