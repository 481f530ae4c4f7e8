#include "device/sim/op_traits.hpp"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "graph/op_cost.hpp"

namespace lowtide::device::sim {
namespace {

template <std::size_t N>
bool contains(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Operators whose `indices` may stay on the host.
constexpr std::array<std::string_view, 7> kIndexing{
    "aten::index",         "aten::index_put",         "aten::index_put_",          "aten::_index_put_impl_",
    "aten::_unsafe_index", "aten::_unsafe_index_put", "aten::_unsafe_masked_index"};

/// Arguments that PyTorch wants on the host on every device.
constexpr std::array<std::string_view, 3> kHostArguments{"batch_sizes", "lengths",
                                                         "tensor_indices_or_sections"};

bool holds_tensors(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::TensorType) return true;
  const auto inner = type.containedTypes();
  return std::any_of(inner.begin(), inner.end(), [](const c10::TypePtr& t) { return holds_tensors(*t); });
}

bool holds_device(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::DeviceObjType) return true;
  const auto inner = type.containedTypes();
  return std::any_of(inner.begin(), inner.end(), [](const c10::TypePtr& t) { return holds_device(*t); });
}

bool takes_tensors(const c10::FunctionSchema& schema) {
  return std::any_of(schema.arguments().begin(), schema.arguments().end(),
                     [](const c10::Argument& argument) { return holds_tensors(*argument.type()); });
}

bool gives_tensors(const c10::FunctionSchema& schema) {
  return std::any_of(schema.returns().begin(), schema.returns().end(),
                     [](const c10::Argument& result) { return holds_tensors(*result.type()); });
}

}  // namespace

OpTraits::OpTraits(const c10::FunctionSchema& schema) : name(schema.name()) {
  synchronises = graph::synchronises(name);
  const bool indexing = contains(kIndexing, name);
  const std::size_t count = std::min<std::size_t>(schema.arguments().size(), 64);
  for (std::size_t i = 0; i < count; ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    const std::uint64_t bit = 1ULL << i;
    if (argument.alias_info() != nullptr && argument.alias_info()->isWrite()) written |= bit;
    if ((indexing && argument.name() == "indices") || contains(kHostArguments, argument.name()))
      host_allowed |= bit;
  }
  writes = written != 0;
}

bool touches_tensors(const c10::FunctionSchema& schema) {
  return takes_tensors(schema) || gives_tensors(schema);
}

bool asks_about_tensors(const c10::FunctionSchema& schema) {
  if (gives_tensors(schema)) return false;
  const OpTraits traits(schema);
  return !traits.writes && !traits.synchronises;
}

bool chooses_device(const c10::FunctionSchema& schema) {
  return takes_tensors(schema) &&
         std::any_of(schema.arguments().begin(), schema.arguments().end(),
                     [](const c10::Argument& argument) { return holds_device(*argument.type()); });
}

}  // namespace lowtide::device::sim
