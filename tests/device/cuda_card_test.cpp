// A GPU's description is a card that the planner reads.
#include <doctest/doctest.h>

#include "device/cuda/card_description.hpp"
#include "device/sim/card.hpp"
#include "lowtide/bytes.hpp"

using namespace lowtide;
using device::cuda::CardFacts;
using device::cuda::describe_card;
using device::sim::Card;

TEST_CASE("a card of known data gets the rates of its data sheet") {
  // GeForce RTX 3060: 28 multiprocessors at 1.777 GHz, 192 bits at 7.5 GHz, PCIe 4.0 x16.
  const Card card = device::sim::parse_card(describe_card({.name = "a card of 12 GB",
                                                           .total_bytes = 12_GiB,
                                                           .context_bytes = 300_MiB,
                                                           .major = 8,
                                                           .minor = 6,
                                                           .multiprocessors = 28,
                                                           .clock_hz = 1.777e9,
                                                           .memory_clock_hz = 7.501e9,
                                                           .memory_bus_bits = 192,
                                                           .link_bytes_per_s = 31.5e9}));
  CHECK(card.name == "a card of 12 GB");
  CHECK(card.total_bytes == 12_GiB);
  CHECK(card.context_bytes == 300_MiB);
  CHECK(card.rates.fp32_flops == doctest::Approx(12.7e12).epsilon(0.01));
  CHECK(card.rates.memory_bytes_per_s == doctest::Approx(360e9).epsilon(0.01));
  CHECK(card.link_pinned_bytes_per_s == doctest::Approx(25.2e9).epsilon(0.01));
}

TEST_CASE("what a driver does not tell stays as on the default card") {
  const Card card = device::sim::parse_card(describe_card(
      {.name = "unknown", .total_bytes = 4_GiB, .context_bytes = 5_GiB, .link_bytes_per_s = {}}));
  const Card standard;
  CHECK(card.context_bytes == 4_GiB);
  CHECK(card.rates.fp32_flops == standard.rates.fp32_flops);
  CHECK(card.rates.memory_bytes_per_s == standard.rates.memory_bytes_per_s);
  CHECK(card.link_pinned_bytes_per_s == standard.link_pinned_bytes_per_s);
}
