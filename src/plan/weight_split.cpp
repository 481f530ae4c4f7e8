#include "plan/weight_split.hpp"

#include <algorithm>
#include <map>
#include <string>

namespace lowtide::plan {

std::pair<std::uint64_t, std::uint64_t> chunk_rows(std::uint64_t rows, std::uint32_t chunk,
                                                   std::uint32_t chunks) {
  const std::uint64_t each = (rows + chunks - 1) / chunks;
  return {std::min(rows, each * chunk), std::min(rows, each * (chunk + 1))};
}

SplitPacking split_weights(const Packing& packing, std::span<const SplittableWeight> weights,
                           std::size_t steps, Bytes largest) {
  std::map<std::uint32_t, SplittableWeight> by_storage;
  for (const SplittableWeight& weight : weights) by_storage[weight.storage] = weight;
  SplitPacking result;
  for (std::size_t u = 0; u < packing.units.size(); ++u) {
    const Unit& unit = packing.units[u];
    const auto found = by_storage.find(packing.content[u].front().storage);
    if (packing.content[u].size() > 1 || unit.bytes <= largest || found == by_storage.end()) {
      result.packing.units.push_back(unit);
      result.packing.content.push_back(packing.content[u]);
      continue;
    }
    const SplittableWeight& weight = found->second;
    const std::uint64_t rows_each =
        std::max<std::uint64_t>(1, largest / std::max<Bytes>(weight.row_bytes, 1));
    const auto wanted = static_cast<std::uint32_t>((weight.rows + rows_each - 1) / rows_each);
    // Equal chunks may need fewer of them: none is empty.
    const std::uint64_t each = (weight.rows + wanted - 1) / wanted;
    const auto chunks = static_cast<std::uint32_t>((weight.rows + each - 1) / each);
    if (result.chunks_of_step.empty()) result.chunks_of_step.assign(steps, 1);
    for (const StepId step : unit.uses) result.chunks_of_step[step] = chunks;
    for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
      const auto [first, end] = chunk_rows(weight.rows, chunk, chunks);
      Unit part = unit;
      part.name += ", rows " + std::to_string(first) + " to " + std::to_string(end - 1);
      part.bytes = (end - first) * weight.row_bytes;
      result.packing.units.push_back(std::move(part));
      result.packing.content.push_back({{.storage = weight.storage,
                                         .offset = 0,
                                         .begin = first * weight.row_bytes,
                                         .chunk = chunk,
                                         .chunks = chunks}});
    }
    ++result.split_weights;
  }
  return result;
}

}  // namespace lowtide::plan
