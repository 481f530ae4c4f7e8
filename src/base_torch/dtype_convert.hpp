// Between the export schema's numbers and LibTorch's enumerations. The two number the same things
// differently.
#pragma once

#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

#include <cstdint>

#include "graph/dtype.hpp"

namespace lowtide {

/// Throws ArchiveError for `unknown`.
c10::ScalarType to_scalar_type(graph::DType dtype);

/// `unknown` for types that the export schema has no number for (u32, u64, quantized and packed types).
graph::DType from_scalar_type(c10::ScalarType type);

/// From the schema's Layout code. Throws ArchiveError for codes without a meaning.
c10::Layout layout_from_schema(std::int64_t code);

/// From the schema's MemoryFormat code. Throws ArchiveError for codes without a meaning.
c10::MemoryFormat memory_format_from_schema(std::int64_t code);

}  // namespace lowtide
