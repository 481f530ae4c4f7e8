// Element types of tensors, numbered as in the export schema (torch/_export/serde/schema.py, ScalarType).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace lowtide::graph {

enum class DType : std::uint8_t {
  unknown = 0,
  u8 = 1,
  i8 = 2,
  i16 = 3,
  i32 = 4,
  i64 = 5,
  f16 = 6,
  f32 = 7,
  f64 = 8,
  c32 = 9,
  c64 = 10,
  c128 = 11,
  boolean = 12,
  bf16 = 13,
  u16 = 28,
  f8_e4m3fn = 29,
  f8_e5m2 = 30,
  f8_e4m3fnuz = 31,
  f8_e5m2fnuz = 32,
};

/// Bytes of one element; 0 for `unknown`.
unsigned element_size(DType dtype);

/// "f32", "i64", "bool" and so on: the spelling of the graph text and of messages.
std::string_view dtype_name(DType dtype);

std::optional<DType> dtype_from_name(std::string_view name);

/// The schema's integer, or nothing when it is none of the above.
std::optional<DType> dtype_from_schema(std::int64_t code);

}  // namespace lowtide::graph
