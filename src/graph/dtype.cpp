#include "graph/dtype.hpp"

#include <algorithm>
#include <array>

namespace lowtide::graph {
namespace {

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  unsigned size;
};

constexpr std::array<DTypeInfo, 19> kTypes{{{DType::unknown, "unknown", 0},
                                            {DType::u8, "u8", 1},
                                            {DType::i8, "i8", 1},
                                            {DType::i16, "i16", 2},
                                            {DType::i32, "i32", 4},
                                            {DType::i64, "i64", 8},
                                            {DType::f16, "f16", 2},
                                            {DType::f32, "f32", 4},
                                            {DType::f64, "f64", 8},
                                            {DType::c32, "c32", 4},
                                            {DType::c64, "c64", 8},
                                            {DType::c128, "c128", 16},
                                            {DType::boolean, "bool", 1},
                                            {DType::bf16, "bf16", 2},
                                            {DType::u16, "u16", 2},
                                            {DType::f8_e4m3fn, "f8_e4m3fn", 1},
                                            {DType::f8_e5m2, "f8_e5m2", 1},
                                            {DType::f8_e4m3fnuz, "f8_e4m3fnuz", 1},
                                            {DType::f8_e5m2fnuz, "f8_e5m2fnuz", 1}}};

template <class Predicate>
const DTypeInfo* find_type(Predicate predicate) {
  const auto it = std::find_if(kTypes.begin(), kTypes.end(), predicate);
  return it == kTypes.end() ? nullptr : &*it;
}

}  // namespace

unsigned element_size(DType dtype) {
  const DTypeInfo* info = find_type([&](const DTypeInfo& type) { return type.dtype == dtype; });
  return info == nullptr ? 0 : info->size;
}

std::string_view dtype_name(DType dtype) {
  const DTypeInfo* info = find_type([&](const DTypeInfo& type) { return type.dtype == dtype; });
  return info == nullptr ? "unknown" : info->name;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  const DTypeInfo* info = find_type([&](const DTypeInfo& type) { return type.name == name; });
  return info == nullptr ? std::nullopt : std::optional(info->dtype);
}

std::optional<DType> dtype_from_schema(std::int64_t code) {
  const DTypeInfo* info =
      find_type([&](const DTypeInfo& type) { return static_cast<int>(type.dtype) == code; });
  return info == nullptr ? std::nullopt : std::optional(info->dtype);
}

}  // namespace lowtide::graph
