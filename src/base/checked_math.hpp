// Size arithmetic that cannot overflow silently. Sizes come from files that may lie.
#pragma once

#include <cstdint>
#include <optional>

namespace lowtide {

/// a + b, or nothing when the result leaves the type.
template <class T>
std::optional<T> checked_add(T a, T b) {
  T r;
  if (__builtin_add_overflow(a, b, &r)) return std::nullopt;
  return r;
}

/// a * b, or nothing when the result leaves the type.
template <class T>
std::optional<T> checked_mul(T a, T b) {
  T r;
  if (__builtin_mul_overflow(a, b, &r)) return std::nullopt;
  return r;
}

/// Rounds up to a multiple of `step` (a power of two). Saturates at the largest multiple.
/// Division that rounds up.
constexpr std::uint64_t ceil_div(std::uint64_t n, std::uint64_t by) {
  return n / by + (n % by != 0 ? 1 : 0);
}

constexpr std::uint64_t round_up(std::uint64_t n, std::uint64_t step) {
  const std::uint64_t mask = step - 1;
  return n > UINT64_MAX - mask ? UINT64_MAX & ~mask : (n + mask) & ~mask;
}

/// a - b, never below zero: budgets cannot go negative.
constexpr std::uint64_t saturating_sub(std::uint64_t a, std::uint64_t b) {
  return a > b ? a - b : 0;
}

}  // namespace lowtide
