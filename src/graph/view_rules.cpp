#include "graph/view_rules.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/checked_math.hpp"

namespace lowtide::graph {
namespace {

/// A view where strides allow it, otherwise a contiguous copy.
constexpr std::array<std::string_view, 6> kReshapes{"aten::reshape", "aten::reshape_as",
                                                    "aten::flatten", "aten::unflatten",
                                                    "aten::ravel",   "aten::_unsafe_view"};

/// The argument itself where it already is what is asked for, otherwise a copy.
constexpr std::array<std::string_view, 6> kConversions{
    "aten::to",       "aten::contiguous", "aten::type_as",
    "aten::positive", "aten::conj",       "aten::_autocast_to_reduced_precision"};

/// The argument itself outside of training.
constexpr std::array<std::string_view, 4> kDropouts{"aten::dropout", "aten::feature_dropout",
                                                    "aten::alpha_dropout", "aten::feature_alpha_dropout"};

/// Never the argument, although they are written in terms of operators that can be.
constexpr std::array<std::string_view, 2> kCopies{"aten::pad", "aten::tensordot"};

bool contains(const auto& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::optional<std::uint64_t> element_count(const ConcreteMeta& meta) {
  std::optional<std::uint64_t> count = 1;
  for (const std::int64_t size : meta.sizes) {
    if (size == 0) return 0;
    if (count) count = size < 0 ? std::nullopt : checked_mul(*count, static_cast<std::uint64_t>(size));
  }
  return count;
}

std::optional<bool> bool_argument(const Node& node, std::string_view name) {
  const Argument* argument = node.find_argument(name);
  const auto* flag = argument == nullptr ? nullptr : std::get_if<bool>(&argument->value);
  return flag == nullptr ? std::nullopt : std::optional(*flag);
}

AliasDecision decide_reshape(const ConcreteMeta& base, const ConcreteMeta& result) {
  const auto count = element_count(base);
  if (base.dtype != result.dtype || !count || count != element_count(result)) return AliasDecision::either;
  if (*count == 0) return AliasDecision::either;  // no memory to share; keeping an empty base costs nothing
  const auto strides = view_strides(base.sizes, base.strides, result.sizes);
  if (!strides) return AliasDecision::fresh;
  return *strides == result.strides ? AliasDecision::alias : AliasDecision::either;
}

}  // namespace

std::optional<std::vector<std::int64_t>> view_strides(const std::vector<std::int64_t>& sizes,
                                                      const std::vector<std::int64_t>& strides,
                                                      const std::vector<std::int64_t>& new_sizes) {
  std::vector<std::int64_t> result(new_sizes.size());
  if (sizes.empty()) {
    std::fill(result.begin(), result.end(), 1);
    return result;
  }
  // From the last dimension on: a run of dimensions that lie densely in memory ("chunk") must be made of
  // whole new dimensions. The chunk ends where the next dimension outwards does not continue it.
  std::size_t view_dims = new_sizes.size();
  std::int64_t chunk_stride = strides.back();
  std::int64_t chunk_elements = 1;
  std::int64_t view_elements = 1;
  for (std::size_t dim = sizes.size(); dim-- > 0;) {
    chunk_elements *= sizes[dim];
    if (dim > 0 && (sizes[dim - 1] == 1 || checked_mul(chunk_elements, chunk_stride) == strides[dim - 1]))
      continue;
    while (view_dims > 0 && (view_elements < chunk_elements || new_sizes[view_dims - 1] == 1)) {
      --view_dims;
      const auto stride = checked_mul(view_elements, chunk_stride);
      if (!stride) return std::nullopt;
      result[view_dims] = *stride;
      view_elements *= new_sizes[view_dims];
    }
    if (view_elements != chunk_elements) return std::nullopt;
    if (dim > 0) {
      chunk_stride = strides[dim - 1];
      chunk_elements = view_elements = 1;
    }
  }
  return view_dims == 0 ? std::optional(std::move(result)) : std::nullopt;
}

AliasDecision decide_alias(const Node& node, const ConcreteMeta* base, const ConcreteMeta* result) {
  const std::string name = node.op_name();
  if (bool_argument(node, "copy") == true || contains(kCopies, name)) return AliasDecision::fresh;
  if (name == "aten::expand_as") return AliasDecision::alias;
  if (contains(kDropouts, name)) {
    return bool_argument(node, "train") == false ? AliasDecision::alias : AliasDecision::either;
  }
  if (name == "aten::einsum" && node.read_values().size() > 1) return AliasDecision::fresh;  // a product
  if (base == nullptr || result == nullptr) return AliasDecision::either;
  if (contains(kReshapes, name)) return decide_reshape(*base, *result);
  if (contains(kConversions, name)) {
    const bool same =
        base->dtype == result->dtype && base->sizes == result->sizes && base->strides == result->strides;
    return same ? AliasDecision::alias : AliasDecision::fresh;
  }
  return AliasDecision::either;
}

}  // namespace lowtide::graph
