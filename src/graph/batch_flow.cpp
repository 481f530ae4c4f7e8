#include "graph/batch_flow.hpp"

#include <algorithm>

#include "base/checked_math.hpp"

namespace lowtide::graph {
namespace {

using Int = std::int64_t;

/// Sizes of the batch under which an expression must be the same multiple; small and large ones, since
/// max(32, s0) and min(512, s0) are s0 in between.
constexpr std::array<Int, 7> kBatches{61, 67, 71, 1, 2, 3, 1048583};
/// Assignments of the other symbols. Two have primes from kFirstPrime on.
constexpr std::size_t kFew = 2, kMany = 3;
constexpr Int kFirstPrime = 101;
/// Of many elements, so many bits for all symbols together, and for one at most: products stay far below
/// 64 bit.
constexpr std::size_t kManyBits = 40, kMostBits = 20;

bool is_prime(Int n) {
  for (Int d = 2; d * d <= n; ++d) {
    if (n % d == 0) return false;
  }
  return true;
}

/// Distinct primes from `next` on, one per symbol.
SymbolValues primes(std::size_t symbols, Int& next) {
  SymbolValues values;
  while (values.size() < symbols) {
    while (!is_prime(next)) ++next;
    values.emplace_back(next++);
  }
  return values;
}

SymbolValues in_range(const Program& program, SymbolValues values) {
  for (const auto& [symbol, range] : program.ranges) {
    if (range.min) values.at(symbol) = std::max(*values[symbol], *range.min);
    if (range.max) values.at(symbol) = std::min(*values[symbol], *range.max);
  }
  return values;
}

bool has_empty_tensor(const Graph& graph, const SymbolValues& values) {
  return std::any_of(graph.values.begin(), graph.values.end(), [&](const Value& value) {
    return std::any_of(value.meta.sizes.begin(), value.meta.sizes.end(), [&](const SymExpr& size) {
      return !size.is_constant() && size.evaluate(values).value_or(1) < 1;
    });
  });
}

/// As few elements as leave no tensor empty: of s1//32 nothing could be said below 32.
SymbolValues few(const Program& program) {
  Int size = 1;
  const auto all = [&] { return in_range(program, SymbolValues(program.symbols.size(), size)); };
  while (size < kFirstPrime && has_empty_tensor(program.graph, all())) size *= 2;
  return all();
}

}  // namespace

BatchSizes::BatchSizes(const Program& program, SymbolId batch) : batch_(batch) {
  const std::size_t symbols = program.symbols.size();
  Int next = kFirstPrime;
  others_[0] = primes(symbols, next);
  others_[1] = primes(symbols, next);
  others_[kFew] = few(program);
  next = Int{1} << std::min(kMostBits, kManyBits / std::max<std::size_t>(symbols - 1, 1));
  others_[kMany] = in_range(program, primes(symbols, next));
}

bool BatchSizes::contains_batch(const SymExpr& expr) const {
  const std::vector<SymbolId> symbols = expr.symbols();
  if (symbols.empty() && !expr.is_constant()) return true;  // not recorded in a way that can be read
  return std::find(symbols.begin(), symbols.end(), batch_) != symbols.end();
}

std::optional<Numbers> BatchSizes::numbers(const SymExpr& expr) const {
  if (contains_batch(expr)) return std::nullopt;
  Numbers numbers{};
  for (std::size_t probe = 0; probe < kProbes; ++probe) {
    const auto value = expr.evaluate(others_[probe]);
    if (!value) return std::nullopt;
    numbers[probe] = *value;
  }
  return numbers;
}

std::optional<Numbers> BatchSizes::factor(const SymExpr& expr) const {
  Numbers factors{};
  for (std::size_t probe = 0; probe < kProbes; ++probe) {
    SymbolValues values = others_[probe];
    for (const Int batch : kBatches) {
      if (probe == kMany && batch == kBatches.back()) continue;  // products would leave 64 bit
      values.at(batch_) = batch;
      const auto size = expr.evaluate(values);
      if (!size || *size <= 0 || *size % batch != 0) return std::nullopt;
      if (batch != kBatches.front() && *size / batch != factors[probe]) return std::nullopt;
      factors[probe] = *size / batch;
    }
  }
  return factors;
}

// --- NodeView
// ---------------------------------------------------------------------------------------------------------

std::optional<ValueId> NodeView::tensor(std::string_view argument) const {
  const Argument* found = node_.find_argument(argument);
  const auto* ref = found == nullptr ? nullptr : std::get_if<Ref>(&found->value);
  return ref != nullptr && is_tensor(ref->value) ? std::optional(ref->value) : std::nullopt;
}

ValueId NodeView::required(std::string_view argument) const {
  if (const auto value = tensor(argument)) return *value;
  throw Mixes{"has no tensor '" + std::string(argument) + "'"};
}

std::vector<ValueId> NodeView::tensors() const {
  std::vector<ValueId> values;
  for (const Argument& argument : node_.arguments) {
    if (argument.name != "out") append_read_values(argument.value, values);
  }
  std::erase_if(values, [&](ValueId value) { return !is_tensor(value); });
  return values;
}

ValueId NodeView::first_tensor() const {
  const std::vector<ValueId> values = tensors();
  if (values.empty()) throw Mixes{"has no tensor"};
  return values.front();
}

ValueId NodeView::result() const {
  const std::vector<ValueId> produced = node_.produced();
  if (produced.empty()) throw Mixes{"has no result"};
  return produced.front();
}

bool NodeView::is_given(std::string_view argument) const {
  const Argument* found = node_.find_argument(argument);
  return found != nullptr && !std::holds_alternative<None>(found->value);
}

std::int64_t NodeView::integer(std::string_view argument, std::int64_t otherwise) const {
  if (!is_given(argument)) return otherwise;
  if (const auto* number = std::get_if<Int>(&node_.find_argument(argument)->value)) return *number;
  throw Mixes{"takes a '" + std::string(argument) + "' that is not known before it runs"};
}

bool NodeView::flag(std::string_view argument, bool otherwise) const {
  if (!is_given(argument)) return otherwise;
  if (const auto* flag = std::get_if<bool>(&node_.find_argument(argument)->value)) return *flag;
  throw Mixes{"takes a '" + std::string(argument) + "' that is not known before it runs"};
}

std::optional<std::vector<Int>> NodeView::integers(std::string_view argument) const {
  if (!is_given(argument)) return std::nullopt;
  const ArgumentValue& value = node_.find_argument(argument)->value;
  if (const auto* list = std::get_if<std::vector<Int>>(&value))
    return list->empty() ? std::nullopt : std::optional(*list);
  return std::vector<Int>{integer(argument, 0)};
}

std::size_t NodeView::length(std::string_view argument) const {
  const Argument* found = node_.find_argument(argument);
  if (found == nullptr) return 0;
  if (const auto* list = std::get_if<std::vector<Int>>(&found->value)) return list->size();
  if (const auto* list = std::get_if<MixedList<Int>>(&found->value)) return list->items.size();
  return 0;
}

bool NodeView::is_sized(std::string_view argument) const {
  const Argument* found = node_.find_argument(argument);
  if (found == nullptr) return false;
  std::vector<ValueId> values;
  append_read_values(found->value, values);
  return std::any_of(values.begin(), values.end(),
                     [&](ValueId value) { return flow(value).kind == Flow::Kind::sized; });
}

bool NodeView::holds_counts(ValueId value) const {
  return meta(value).dtype == DType::i64 || meta(value).dtype == DType::i32;
}

std::size_t NodeView::dimension(Int dim, std::size_t rank) const {
  const Int front = dim < 0 ? dim + static_cast<Int>(rank) : dim;
  if (front < 0 || front >= std::max<Int>(static_cast<Int>(rank), 1))
    throw Mixes{"names a dimension that its argument does not have"};
  return static_cast<std::size_t>(front);
}

void NodeView::require_free(std::initializer_list<std::string_view> arguments) const {
  for (const std::string_view argument : arguments) {
    const auto value = tensor(argument);
    if (value && flow(*value).is_carried())
      throw Mixes{"takes a '" + std::string(argument) + "' that depends on it"};
  }
}

void NodeView::require_no_size(std::initializer_list<std::string_view> but) const {
  for (const Argument& argument : node_.arguments) {
    if (std::find(but.begin(), but.end(), argument.name) == but.end() && is_sized(argument.name))
      throw Mixes{"computes with the size itself"};
  }
}

Carried NodeView::carried_by_size(ValueId value, const Numbers& outer) const {
  const std::vector<SymExpr>& sizes = meta(value).sizes;
  std::optional<std::size_t> dim;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (!sizes_.contains_batch(sizes[d])) continue;
    if (dim) throw Mixes{"makes it two dimensions of one result"};
    dim = d;
  }
  if (!dim) throw Mixes{"makes a result without it"};
  auto inner = sizes_.factor(sizes[*dim]);
  if (!inner) throw Mixes{"makes a size of it that is no multiple"};
  for (std::size_t probe = 0; probe < kProbes; ++probe) {
    if (outer[probe] < 1 || (*inner)[probe] % outer[probe] != 0)
      throw Mixes{"folds another dimension around it"};
    (*inner)[probe] /= outer[probe];
  }
  return {.dim = *dim, .fold = {outer, *inner}};
}

}  // namespace lowtide::graph
