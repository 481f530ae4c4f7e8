#include "device/sim/card.hpp"

#include <doctest/doctest.h>

#include <string>

#include "device/device_spec.hpp"
#include "lowtide/error.hpp"

using lowtide::UsageError;
using lowtide::device::sim::Card;
using lowtide::device::sim::Faults;
using lowtide::device::sim::format_card;
using lowtide::device::sim::parse_card;

namespace {

std::string message_for(const char* json) {
  try {
    parse_card(json);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

bool names(const char* json, const char* key) {
  return message_for(json).find(key) != std::string::npos;
}

}  // namespace

TEST_CASE("an empty object is the default card") {
  const Card card = parse_card("{}");
  CHECK(card == Card{});
  CHECK(card.total_bytes == 8589934592);
  CHECK(card.rates.fp32_flops == 12.7e12);
  CHECK(card.link_pageable_bytes_per_s == 12e9);
  CHECK(card.poison);
}

TEST_CASE("every key sets its own field") {
  const Card card = parse_card(
      R"({"name":"x","total_bytes":6e9,"context_bytes":100,"fp32_flops":1,"fp16_flops":2,"memory_bytes_per_s":3,
          "link_pinned_bytes_per_s":4,"link_pageable_bytes_per_s":5,"copy_latency_s":6,"launch_s":7,"kernel_s":8,"alloc_s":9,
          "fp64_flops":10,"free_s":1,"synchronize_s":2,"poison":false,"race_check":false,"max_allocation_bytes":64,
          "source":["a data sheet"],"faults":{"allocation":1,"copy":2,"page_lock":3,"wait":4,"other_program_bytes":1e6,
          "other_program_at":5,"order_seed":6}})");
  CHECK(card.name == "x");
  CHECK(card.total_bytes == 6000000000);
  CHECK(card.context_bytes == 100);
  CHECK(card.rates.fp32_flops == 1);
  CHECK(card.rates.fp16_flops == 2);
  CHECK(card.rates.memory_bytes_per_s == 3);
  CHECK(card.link_pinned_bytes_per_s == 4);
  CHECK(card.link_pageable_bytes_per_s == 5);
  CHECK(card.copy_latency_s == 6);
  CHECK(card.launch_s == 7);
  CHECK(card.rates.kernel_s == 8);
  CHECK(card.alloc_s == 9);
  CHECK_FALSE(card.poison);
  CHECK(card.max_allocation_bytes == 64);
  CHECK(card.rates.fp64_flops == 10);
  CHECK(card.free_s == 1);
  CHECK(card.synchronize_s == 2);
  CHECK_FALSE(card.race_check);
  CHECK(card.faults == Faults{1, 2, 3, 4, 1000000, 5, 6});
}

TEST_CASE("a card that is written and read again is the same, but for its faults") {
  Card card = parse_card(R"({"name":"x","total_bytes":6e9,"fp64_flops":3,"free_s":1e-5,"race_check":false})");
  CHECK(parse_card(format_card(card)) == card);
  card.faults.copy = 1;
  CHECK(parse_card(format_card(card)).faults == Faults{});
}

TEST_CASE("the shipped cards can be read, are named as their files and say where their figures are from") {
  for (const std::string name : {"default", "rtx_3060_12gb", "laptop_7600mib", "a100_40gb"}) {
    CAPTURE(name);
    const std::string text = lowtide::device::parse_device_spec("sim:" + name).card_json;
    const Card card = parse_card(text);
    CHECK(card.name == name);
    if (name == "default") continue;
    CHECK(card.context_bytes > 100'000'000);
    CHECK(card.alloc_s > 0);
    CHECK(text.find("\"source\"") != std::string::npos);
  }
}

TEST_CASE("a mistake in a card is refused with the name of the key") {
  CHECK(names(R"({"totl_bytes": 1})", "totl_bytes"));
  CHECK(names(R"({"total_bytes": -1})", "total_bytes"));
  CHECK(names(R"({"total_bytes": 0})", "total_bytes"));
  CHECK(names(R"({"total_bytes": 1.5})", "total_bytes"));
  CHECK(names(R"({"total_bytes": 1e30})", "total_bytes"));
  CHECK(names(R"({"total_bytes": "8GiB"})", "total_bytes"));
  CHECK(names(R"({"total_bytes": 10, "context_bytes": 11})", "context_bytes"));
  CHECK(names(R"({"fp32_flops": 0})", "fp32_flops"));
  CHECK(names(R"({"launch_s": -1e-6})", "launch_s"));
  CHECK(names(R"({"kernel_s": 1e9})", "kernel_s"));
  CHECK(names(R"({"poison": 1})", "poison"));
  CHECK(names(R"({"name": ""})", "name"));
  CHECK(names(R"({"source": 3})", "source"));
  CHECK(names(R"({"faults": 3})", "faults"));
  CHECK(names(R"({"faults": {"alocation": 1}})", "alocation"));
  CHECK(names(R"({"faults": {"allocation": -1}})", "allocation"));
  CHECK(names(R"({"alloc_s": 0, "alloc_s": 1})", "occurs twice"));
}

TEST_CASE("text that is no JSON object is refused in one line") {
  for (const char* text : {"", "{", "[]", "3", "{\"total_bytes\": 1e9999}", "{}x"}) {
    const std::string message = message_for(text);
    CHECK_MESSAGE(message != "accepted", text);
    CHECK(message.find('\n') == std::string::npos);
  }
}
