#include "archive/argument_reader.hpp"

#include <memory>
#include <utility>

#include "graph/quote.hpp"

namespace lowtide::archive {

using graph::ArgumentValue;
using graph::in_quotes;
using graph::ValueId;
using graph::ValueKind;

namespace {

/// Codes are small; what they mean is checked by who uses them.
int small_code(Json json) {
  const std::int64_t code = json.integer();
  if (code < 0 || code > 255) json.fail("unknown code " + std::to_string(code));
  return static_cast<int>(code);
}

graph::DType dtype(Json json) {
  const auto dtype = graph::dtype_from_schema(json.integer());
  if (!dtype) json.fail("unknown element type " + std::to_string(json.integer()));
  return *dtype;
}

graph::DeviceArg device(Json json) {
  graph::DeviceArg device{std::string(json.at("type").string()), {}};
  if (const auto index = json.find("index")) device.index = small_code(*index);
  return device;
}

template <class T, class Read>
std::vector<T> list_of(Json list, Read read) {
  std::vector<T> items;
  items.reserve(list.size());
  for (const Json item : list.elements()) items.push_back(read(item));
  return items;
}

std::int64_t read_integer(Json json) {
  return json.integer();
}
double read_number(Json json) {
  return json.number();
}
bool read_boolean(Json json) {
  return json.boolean();
}
std::string read_string(Json json) {
  return std::string(json.string());
}

const char* kind_name(ValueKind kind) {
  switch (kind) {
    case ValueKind::tensor:
      return "tensor";
    case ValueKind::sym_int:
      return "symbolic int";
    case ValueKind::sym_float:
      return "symbolic float";
    case ValueKind::sym_bool:
      return "symbolic bool";
    case ValueKind::custom_object:
      return "custom object";
  }
  return "value";
}

}  // namespace

ValueId ArgumentReader::reference(Json name, ValueKind kind) const {
  const auto id = graph_.find_value(name.string());
  if (!id) name.fail("the graph has no value " + in_quotes(name.string()));
  if (graph_.values[*id].kind != kind) name.fail(in_quotes(name.string()) + " is no " + kind_name(kind));
  return *id;
}

std::optional<ValueId> ArgumentReader::optional_tensor(Json json) const {
  const Json content = json.only_member();
  if (content.key() == "as_none") return std::nullopt;
  if (content.key() != "as_tensor")
    content.fail("unknown kind of optional tensor " + in_quotes(content.key()));
  return reference(content.at("name"), ValueKind::tensor);
}

/// {"as_name": ...} or a number under `tag`.
template <class T, class Number>
ArgumentValue ArgumentReader::symbolic(Json json, const char* tag, ValueKind kind, Number number) const {
  const Json content = json.only_member();
  if (content.key() == "as_name") return graph::Ref{reference(content, kind)};
  if (content.key() != tag) content.fail("unknown kind of symbolic value " + in_quotes(content.key()));
  return T{number(content)};
}

/// A list of numbers only becomes a plain vector.
template <class T, class Number>
ArgumentValue ArgumentReader::symbolic_list(Json list, const char* tag, ValueKind kind, Number number) const {
  graph::MixedList<T> mixed;
  std::vector<T> plain;
  for (const Json item : list.elements()) {
    const ArgumentValue value = symbolic<T>(item, tag, kind, number);
    if (const auto* reference = std::get_if<graph::Ref>(&value)) {
      mixed.items.emplace_back(std::in_place_index<1>, reference->value);
    } else {
      plain.push_back(std::get<T>(value));
      mixed.items.emplace_back(std::in_place_index<0>, std::get<T>(value));
    }
  }
  if (plain.size() == mixed.items.size()) return plain;
  return mixed;
}

std::optional<ArgumentValue> ArgumentReader::plain_value(Json content) const {
  const std::string_view tag = content.key();
  if (tag == "as_none") return graph::None{};
  if (tag == "as_int") return content.integer();
  if (tag == "as_float") return content.number();
  if (tag == "as_bool") return content.boolean();
  if (tag == "as_string") return std::string(content.string());
  if (tag == "as_scalar_type") return graph::ScalarTypeArg{dtype(content)};
  if (tag == "as_memory_format") return graph::MemoryFormatArg{small_code(content)};
  if (tag == "as_layout") return graph::LayoutArg{small_code(content)};
  if (tag == "as_device") return device(content);
  if (tag == "as_complex")
    return std::complex<double>(content.at("real").number(), content.at("imag").number());
  if (tag == "as_operator") return graph::OperatorArg{std::string(content.string())};
  if (tag == "as_custom_obj") return graph::CustomObjectArg{std::string(content.at("name").string())};
  return std::nullopt;
}

std::optional<ArgumentValue> ArgumentReader::symbolic_value(Json content) const {
  const std::string_view tag = content.key();
  if (tag == "as_tensor") return graph::Ref{reference(content.at("name"), ValueKind::tensor)};
  if (tag == "as_sym_int") return symbolic<std::int64_t>(content, "as_int", ValueKind::sym_int, read_integer);
  if (tag == "as_sym_float") return symbolic<double>(content, "as_float", ValueKind::sym_float, read_number);
  if (tag == "as_sym_bool") return symbolic<bool>(content, "as_bool", ValueKind::sym_bool, read_boolean);
  if (tag == "as_optional_tensor") {
    const auto tensor = optional_tensor(content);
    return tensor ? ArgumentValue(graph::Ref{*tensor}) : ArgumentValue(graph::None{});
  }
  if (tag == "as_graph") {
    auto body = std::make_shared<graph::Graph>(nested_.read_nested(content.at("graph")));
    return graph::GraphArg{std::string(content.at("name").string()), std::move(body)};
  }
  return std::nullopt;
}

std::optional<ArgumentValue> ArgumentReader::list_value(Json content) const {
  const std::string_view tag = content.key();
  if (tag == "as_ints") return list_of<std::int64_t>(content, read_integer);
  if (tag == "as_floats") return list_of<double>(content, read_number);
  if (tag == "as_bools") return list_of<bool>(content, read_boolean);
  if (tag == "as_strings") return list_of<std::string>(content, read_string);
  if (tag == "as_sym_ints")
    return symbolic_list<std::int64_t>(content, "as_int", ValueKind::sym_int, read_integer);
  if (tag == "as_sym_floats")
    return symbolic_list<double>(content, "as_float", ValueKind::sym_float, read_number);
  if (tag == "as_sym_bools")
    return symbolic_list<bool>(content, "as_bool", ValueKind::sym_bool, read_boolean);
  if (tag == "as_tensors") {
    return graph::TensorList{list_of<std::optional<ValueId>>(
        content, [&](Json item) { return std::optional(reference(item.at("name"), ValueKind::tensor)); })};
  }
  if (tag == "as_optional_tensors") {
    return graph::TensorList{
        list_of<std::optional<ValueId>>(content, [&](Json item) { return optional_tensor(item); })};
  }
  return std::nullopt;
}

ArgumentValue ArgumentReader::value(Json argument) const {
  const Json content = argument.only_member();
  if (auto plain = plain_value(content)) return std::move(*plain);
  if (auto symbol = symbolic_value(content)) return std::move(*symbol);
  if (auto list = list_value(content)) return std::move(*list);
  content.fail("arguments of kind " + in_quotes(content.key()) + " are not supported");
}

ValueId ArgumentReader::result(Json name, ValueKind kind) {
  if (graph_.find_value(name.string())) return reference(name, kind);
  graph::Value value;
  value.name = name.string();
  value.kind = kind;
  return graph_.add_value(std::move(value));
}

graph::NodeOutput ArgumentReader::output(Json argument) {
  const Json content = argument.only_member();
  const std::string_view tag = content.key();
  const auto symbol = [&](ValueKind kind) -> graph::NodeOutput {
    const Json name = content.only_member();
    if (name.key() != "as_name") return graph::OutputNone{};  // a number that was known at export
    return result(name, kind);
  };
  if (tag == "as_none") return graph::OutputNone{};
  if (tag == "as_tensor") return result(content.at("name"), ValueKind::tensor);
  if (tag == "as_sym_int") return symbol(ValueKind::sym_int);
  if (tag == "as_sym_float") return symbol(ValueKind::sym_float);
  if (tag == "as_sym_bool") return symbol(ValueKind::sym_bool);
  if (tag == "as_custom_obj") return result(content.at("name"), ValueKind::custom_object);
  if (tag == "as_optional_tensor") {
    const Json item = content.only_member();
    if (item.key() == "as_none") return graph::OutputNone{};
    return result(item.at("name"), ValueKind::tensor);
  }
  if (tag == "as_tensors") {
    return list_of<ValueId>(content, [&](Json item) { return result(item.at("name"), ValueKind::tensor); });
  }
  content.fail("results of kind " + in_quotes(tag) + " are not supported");
}

}  // namespace lowtide::archive
