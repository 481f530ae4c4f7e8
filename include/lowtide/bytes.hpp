// Sizes in bytes: literals, parsing and printing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lowtide {

/// A number of bytes. Unsigned 64 bit everywhere; differences are formed with checked arithmetic.
using Bytes = std::uint64_t;

inline namespace literals {
constexpr Bytes operator""_KiB(unsigned long long n) {
  return n << 10;
}
constexpr Bytes operator""_MiB(unsigned long long n) {
  return n << 20;
}
constexpr Bytes operator""_GiB(unsigned long long n) {
  return n << 30;
}
}  // namespace literals

/// "1048576", "64MiB", "1.5 GiB", "8GB". A bare number is bytes; KiB/MiB/GiB are powers of 1024, KB/MB/GB of
/// 1000. Throws UsageError for anything else, for negative values and for values beyond 64 bit.
Bytes parse_bytes(std::string_view text);

/// For people: "36.7 MiB". Exact bytes below 1 KiB.
std::string format_bytes(Bytes bytes);

}  // namespace lowtide
