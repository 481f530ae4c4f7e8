#include "base_torch/dtype_convert.hpp"

#include <array>
#include <string>
#include <utility>

#include "lowtide/error.hpp"

namespace lowtide {
namespace {

using c10::ScalarType;
using graph::DType;

constexpr std::array<std::pair<DType, ScalarType>, 18> kScalarTypes{{
    {DType::u8, ScalarType::Byte},
    {DType::i8, ScalarType::Char},
    {DType::i16, ScalarType::Short},
    {DType::i32, ScalarType::Int},
    {DType::i64, ScalarType::Long},
    {DType::f16, ScalarType::Half},
    {DType::f32, ScalarType::Float},
    {DType::f64, ScalarType::Double},
    {DType::c32, ScalarType::ComplexHalf},
    {DType::c64, ScalarType::ComplexFloat},
    {DType::c128, ScalarType::ComplexDouble},
    {DType::boolean, ScalarType::Bool},
    {DType::bf16, ScalarType::BFloat16},
    {DType::u16, ScalarType::UInt16},
    {DType::f8_e4m3fn, ScalarType::Float8_e4m3fn},
    {DType::f8_e5m2, ScalarType::Float8_e5m2},
    {DType::f8_e4m3fnuz, ScalarType::Float8_e4m3fnuz},
    {DType::f8_e5m2fnuz, ScalarType::Float8_e5m2fnuz},
}};

ArchiveError unknown_code(const char* what, std::int64_t code) {
  return ArchiveError(
      std::string(what) + " " + std::to_string(code) +
      " is not in the export schema; export the model again with the torch version lowtide is built for");
}

}  // namespace

c10::ScalarType to_scalar_type(graph::DType dtype) {
  for (const auto& [schema, torch] : kScalarTypes) {
    if (schema == dtype) return torch;
  }
  throw unknown_code("element type", static_cast<std::int64_t>(dtype));
}

graph::DType from_scalar_type(c10::ScalarType type) {
  for (const auto& [schema, torch] : kScalarTypes) {
    if (torch == type) return schema;
  }
  return DType::unknown;
}

c10::Layout layout_from_schema(std::int64_t code) {
  using c10::Layout;
  static constexpr std::array<Layout, 7> kLayouts{Layout::Sparse,    Layout::SparseCsr, Layout::SparseCsc,
                                                  Layout::SparseBsr, Layout::SparseBsc, Layout::Mkldnn,
                                                  Layout::Strided};
  if (code < 1 || code > static_cast<std::int64_t>(kLayouts.size()))
    throw unknown_code("tensor layout", code);
  return kLayouts[static_cast<std::size_t>(code - 1)];
}

c10::MemoryFormat memory_format_from_schema(std::int64_t code) {
  using c10::MemoryFormat;
  static constexpr std::array<MemoryFormat, 4> kFormats{MemoryFormat::Contiguous, MemoryFormat::ChannelsLast,
                                                        MemoryFormat::ChannelsLast3d, MemoryFormat::Preserve};
  if (code < 1 || code > static_cast<std::int64_t>(kFormats.size()))
    throw unknown_code("memory format", code);
  return kFormats[static_cast<std::size_t>(code - 1)];
}

}  // namespace lowtide
