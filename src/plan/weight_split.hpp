// Weights larger than the cap: a weight of `linear` as several units, each a range of its rows.
#pragma once

#include <span>

#include "plan/unit_packing.hpp"

namespace lowtide::plan {

/// A storage that may be cut: every step that reads it multiplies by its rows one by one.
struct SplittableWeight {
  std::uint32_t storage = 0;
  std::uint64_t rows = 0;
  Bytes row_bytes = 0;
};

struct SplitPacking {
  Packing packing;
  std::vector<std::uint32_t> chunks_of_step;  // empty where nothing is split
  std::size_t split_weights = 0;
};

/// The packing with each splittable unit above `largest` bytes cut into equal chunks of rows of at most that
/// size, or single rows where a row is larger.
SplitPacking split_weights(const Packing& packing, std::span<const SplittableWeight> weights,
                           std::size_t steps, Bytes largest);

/// Rows [first, second) of chunk `chunk` of so many.
std::pair<std::uint64_t, std::uint64_t> chunk_rows(std::uint64_t rows, std::uint32_t chunk,
                                                   std::uint32_t chunks);

}  // namespace lowtide::plan
