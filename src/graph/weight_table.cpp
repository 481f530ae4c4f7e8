#include "graph/weight_table.hpp"

#include "graph/quote.hpp"
#include "lowtide/error.hpp"

namespace lowtide::graph {
namespace {

std::string describe(DType dtype, const std::vector<std::string>& sizes) {
  std::string text(dtype_name(dtype));
  text += "[";
  for (std::size_t i = 0; i < sizes.size(); ++i) text += (i == 0 ? "" : ", ") + sizes[i];
  return text + "]";
}

std::string describe(const ConcreteMeta& meta) {
  std::vector<std::string> sizes;
  for (const std::int64_t size : meta.sizes) sizes.push_back(std::to_string(size));
  return describe(meta.dtype, sizes);
}

std::string describe(const TensorMeta& meta) {
  std::vector<std::string> sizes;
  for (const SymExpr& size : meta.sizes) {
    sizes.push_back(size.is_constant() ? std::to_string(size.constant()) : "a symbol");
  }
  return describe(meta.dtype, sizes);
}

bool agree(const TensorMeta& expected, const ConcreteMeta& actual) {
  if (expected.dtype != actual.dtype || expected.sizes.size() != actual.sizes.size()) return false;
  for (std::size_t i = 0; i < actual.sizes.size(); ++i) {
    if (!expected.sizes[i].is_constant() || expected.sizes[i].constant() != actual.sizes[i]) return false;
  }
  return true;
}

}  // namespace

std::vector<std::uint32_t> WeightTable::resolve(const Graph& graph) const {
  const auto find = [](const auto& map, const std::string& name) {
    const auto it = map.find(name);
    return it == map.end() ? UINT32_MAX : it->second;
  };
  std::vector<std::uint32_t> resolved;
  resolved.reserve(graph.inputs.size());
  for (const GraphInput& input : graph.inputs) {
    const bool constant = input.kind == InputKind::tensor_constant;
    if (!constant && input.kind != InputKind::parameter && input.kind != InputKind::buffer) {
      resolved.push_back(UINT32_MAX);
      continue;
    }
    std::uint32_t index = UINT32_MAX;
    if (!constant) index = find(parameters_and_buffers, input.target);
    if (index == UINT32_MAX)
      index = find(constants, input.target);  // non-persistent buffers are kept there, too
    if (index == UINT32_MAX) {
      throw ArchiveError("the graph uses the weight " + in_quotes(input.target) +
                         ", which the archive does not have");
    }
    const TensorMeta& expected = graph.values.at(input.value).meta;
    if (!agree(expected, weights.at(index).meta)) {
      throw ArchiveError("weight " + in_quotes(input.target) + " is " + describe(weights[index].meta) +
                         " in the archive, but the graph takes " + describe(expected));
    }
    resolved.push_back(index);
  }
  return resolved;
}

std::uint64_t WeightTable::total_bytes() const {
  std::uint64_t total = 0;
  for (const WeightFile& file : files) total += file.bytes;
  return total;
}

}  // namespace lowtide::graph
