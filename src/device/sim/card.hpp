// What a simulated card is: its sizes and rates, read from JSON. No LibTorch here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "device/sim/faults.hpp"
#include "graph/op_cost.hpp"

namespace lowtide::device::sim {

/// The defaults are the default card of configs/cards/default.json. Bytes, seconds, operations per second.
struct Card {
  std::string name = "default";
  std::uint64_t total_bytes = 8ULL << 30;
  std::uint64_t context_bytes = 0;        // taken before the first allocation
  graph::ComputeRates rates;              // operator cost
  double link_pinned_bytes_per_s = 24e9;  // per direction, from and to page-locked memory
  double link_pageable_bytes_per_s = 12e9;
  double copy_latency_s = 1e-5;
  double launch_s = 5e-6;                  // host time of every operator call and copy
  double alloc_s = 0;                      // host time when the allocator has to ask the driver
  double free_s = 0;                       // host time when memory goes back to the driver
  double synchronize_s = 0;                // host time of every wait of the host, beside the waiting
  bool poison = true;                      // fill memory on allocation and on free
  bool race_check = true;                  // refuse work that is not ordered after what it depends on
  std::uint64_t max_allocation_bytes = 0;  // largest single allocation; 0 = no limit
  Faults faults;

  bool operator==(const Card& other) const;
};

/// Reads a JSON object whose keys are all optional; "source", texts that say where the figures come from, is
/// for people. Throws UsageError, naming the key, for text that is no
/// JSON object, unknown or repeated keys, and values of the wrong type or outside their range.
Card parse_card(std::string_view json);
/// The card as text that parse_card() reads, faults left out.
std::string format_card(const Card& card);
/// Reads the object that a card's "faults" may hold. Throws UsageError as parse_card.
Faults parse_faults(std::string_view json);

}  // namespace lowtide::device::sim
