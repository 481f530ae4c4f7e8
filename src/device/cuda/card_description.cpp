#include "device/cuda/card_description.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace lowtide::device::cuda {
namespace {

/// Single-precision lanes of one multiprocessor.
int lanes(int major, int minor) {
  if (major < 6) return 128;  // Maxwell
  if (major == 6) return minor == 0 ? 64 : 128;
  if (major == 7) return 64;                     // Volta, Turing
  if (major == 8) return minor == 0 ? 64 : 128;  // A100; other Ampere, Ada
  return 128;                                    // Hopper and later
}

/// Half precision against single precision, for matrix products.
double half_gain(int major, int minor) {
  if (major < 7) return 1;  // computed in single precision
  const bool data_centre = minor == 0 && major < 12;
  return data_centre ? 8 : 2;
}

}  // namespace

std::string describe_card(const CardFacts& facts) {
  nlohmann::ordered_json card{{"name", facts.name},
                              {"total_bytes", facts.total_bytes},
                              {"context_bytes", std::min(facts.context_bytes, facts.total_bytes)}};
  const double flops =
      2.0 * facts.multiprocessors * lanes(facts.major, facts.minor) * facts.clock_hz;  // multiply and add
  if (flops > 0) {
    card["fp32_flops"] = flops;
    card["fp16_flops"] = flops * half_gain(facts.major, facts.minor);
  }
  const double memory = 2.0 * facts.memory_clock_hz * facts.memory_bus_bits / 8;  // two transfers a clock
  if (memory > 0) card["memory_bytes_per_s"] = memory;
  if (facts.link_bytes_per_s) {
    constexpr double kProtocol = 0.8;  // what page-locked copies reach of the link's rate
    card["link_pinned_bytes_per_s"] = kProtocol * *facts.link_bytes_per_s;
    card["link_pageable_bytes_per_s"] = kProtocol / 2 * *facts.link_bytes_per_s;
  }
  return card.dump();
}

}  // namespace lowtide::device::cuda
