// A GPU described as a card: what the planner's cost model starts from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lowtide::device::cuda {

/// What the description is made of. Clocks in hertz; zero where the driver does not tell.
struct CardFacts {
  std::string name;
  std::uint64_t total_bytes = 0;
  std::uint64_t context_bytes = 0;  // all that a plan has to leave free
  int major = 0, minor = 0;         // compute capability
  int multiprocessors = 0;
  double clock_hz = 0;
  double memory_clock_hz = 0;
  int memory_bus_bits = 0;
  std::optional<double> link_bytes_per_s;
};

/// JSON as in configs/cards/. Rates are peaks from clocks, so they rank plans rather than predict seconds;
/// what is unknown is left out, and the default card's value then holds.
std::string describe_card(const CardFacts& facts);

}  // namespace lowtide::device::cuda
