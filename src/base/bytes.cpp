#include "lowtide/bytes.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <utility>

#include "lowtide/error.hpp"

namespace lowtide {

Bytes parse_bytes(std::string_view text) {
  const auto fail = [&](const char* why) -> UsageError {
    return UsageError("size '" + std::string(text) + "' " + why +
                      "; write bytes or a number with KiB, MiB, GiB, KB, MB or GB, such as 512MiB");
  };
  double number = 0;
  const auto [end, status] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (status != std::errc() || !std::isfinite(number) || number < 0) throw fail("is not a number of bytes");

  std::string_view suffix(end, static_cast<std::size_t>(text.data() + text.size() - end));
  while (!suffix.empty() && suffix.front() == ' ') suffix.remove_prefix(1);
  static constexpr std::array<std::pair<std::string_view, double>, 8> kUnits{{{"", 1},
                                                                              {"B", 1},
                                                                              {"KiB", 1024.0},
                                                                              {"MiB", 1024.0 * 1024},
                                                                              {"GiB", 1024.0 * 1024 * 1024},
                                                                              {"KB", 1e3},
                                                                              {"MB", 1e6},
                                                                              {"GB", 1e9}}};
  for (const auto& [name, factor] : kUnits) {
    if (suffix != name) continue;
    if (factor == 1) {  // exact, and no fractions of a byte
      Bytes whole = 0;
      const auto [stop, code] = std::from_chars(text.data(), end, whole);
      if (code != std::errc() || stop != end) throw fail("is not a whole number of bytes");
      return whole;
    }
    const double bytes = number * factor;
    if (bytes >= 18446744073709551615.0) throw fail("does not fit 64 bit");
    return static_cast<Bytes>(std::llround(std::floor(bytes)));
  }
  throw fail("has an unknown unit");
}

std::string format_bytes(Bytes bytes) {
  static constexpr std::array<const char*, 5> kNames{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kNames.size()) value /= 1024, ++unit;
  std::array<char, 48> text;
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.1f %s", value, kNames[unit]);
  return text.data();
}

}  // namespace lowtide
