#include "device/sim/card.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "lowtide/error.hpp"

namespace lowtide::device::sim {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMostBytes = 1ULL << 50;  // more is a slip of the pen, and sums must not overflow
constexpr double kMostRate = 1e18;
constexpr double kMostSeconds = 10;

[[noreturn]] void refuse(const std::string& key, const std::string& why) {
  throw UsageError("card: '" + key + "' " + why + "; see configs/cards/default.json for the keys");
}

std::uint64_t byte_count(const std::string& key, const Json& value, std::uint64_t least) {
  // 8e9 is a float in JSON, yet a perfectly good number of bytes.
  if (!value.is_number()) refuse(key, "must be a number of bytes");
  const auto number = value.get<double>();
  if (!std::isfinite(number) || number < 0 || number != std::floor(number)) {
    refuse(key, "must be a whole number of bytes, zero or more");
  }
  if (number < static_cast<double>(least)) refuse(key, "must be at least " + std::to_string(least));
  if (number > static_cast<double>(kMostBytes)) refuse(key, "is beyond " + format_bytes(kMostBytes));
  return value.is_number_float() ? static_cast<std::uint64_t>(number) : value.get<std::uint64_t>();
}

double rate(const std::string& key, const Json& value) {
  if (!value.is_number()) refuse(key, "must be a number per second");
  const auto number = value.get<double>();
  if (!std::isfinite(number) || number <= 0) refuse(key, "must be above zero");
  if (number > kMostRate) refuse(key, "is beyond 1e18 per second");
  return number;
}

double seconds(const std::string& key, const Json& value) {
  if (!value.is_number()) refuse(key, "must be a number of seconds");
  const auto number = value.get<double>();
  if (!std::isfinite(number) || number < 0) refuse(key, "must be zero or more");
  if (number > kMostSeconds) refuse(key, "is beyond 10 seconds");
  return number;
}

bool flag(const std::string& key, const Json& value) {
  if (!value.is_boolean()) refuse(key, "must be true or false");
  return value.get<bool>();
}

std::string text(const std::string& key, const Json& value) {
  if (!value.is_string() || value.get_ref<const std::string&>().empty()) refuse(key, "must be a name");
  return value.get<std::string>();
}

std::uint64_t count(const std::string& key, const Json& value) {
  if (!value.is_number_unsigned()) refuse(key, "must be a whole number, zero or more");
  return value.get<std::uint64_t>();
}

Faults faults(const Json& object) {
  if (!object.is_object()) refuse("faults", "must be an object, such as {\"allocation\": 3}");
  Faults faults;
  for (const auto& [key, value] : object.items()) {
    if (key == "allocation") {
      faults.allocation = count(key, value);
    } else if (key == "copy") {
      faults.copy = count(key, value);
    } else if (key == "page_lock") {
      faults.page_lock = count(key, value);
    } else if (key == "wait") {
      faults.wait = count(key, value);
    } else if (key == "other_program_bytes") {
      faults.other_program_bytes = byte_count(key, value, 0);
    } else if (key == "other_program_at") {
      faults.other_program_at = count(key, value);
    } else if (key == "order_seed") {
      faults.order_seed = count(key, value);
    } else {
      refuse("faults", "has no '" + key + "'");
    }
  }
  return faults;
}

void check_source(const Json& value) {
  const bool texts = value.is_array() && std::all_of(value.begin(), value.end(),
                                                     [](const Json& line) { return line.is_string(); });
  if (!texts && !value.is_string()) refuse("source", "must be a text or a list of texts");
}

void set(Card& card, const std::string& key, const Json& value) {
  if (key == "name") return void(card.name = text(key, value));
  if (key == "total_bytes") return void(card.total_bytes = byte_count(key, value, 1));
  if (key == "context_bytes") return void(card.context_bytes = byte_count(key, value, 0));
  if (key == "fp32_flops") return void(card.rates.fp32_flops = rate(key, value));
  if (key == "fp16_flops") return void(card.rates.fp16_flops = rate(key, value));
  if (key == "memory_bytes_per_s") return void(card.rates.memory_bytes_per_s = rate(key, value));
  if (key == "link_pinned_bytes_per_s") return void(card.link_pinned_bytes_per_s = rate(key, value));
  if (key == "link_pageable_bytes_per_s") return void(card.link_pageable_bytes_per_s = rate(key, value));
  if (key == "copy_latency_s") return void(card.copy_latency_s = seconds(key, value));
  if (key == "launch_s") return void(card.launch_s = seconds(key, value));
  if (key == "kernel_s") return void(card.rates.kernel_s = seconds(key, value));
  if (key == "alloc_s") return void(card.alloc_s = seconds(key, value));
  if (key == "free_s") return void(card.free_s = seconds(key, value));
  if (key == "synchronize_s") return void(card.synchronize_s = seconds(key, value));
  if (key == "fp64_flops") return void(card.rates.fp64_flops = rate(key, value));
  if (key == "poison") return void(card.poison = flag(key, value));
  if (key == "race_check") return void(card.race_check = flag(key, value));
  if (key == "faults") return void(card.faults = faults(value));
  if (key == "source") return check_source(value);
  if (key == "max_allocation_bytes") return void(card.max_allocation_bytes = byte_count(key, value, 0));
  refuse(key, "is not a key of a card");
}

/// nlohmann_json keeps the last of repeated keys; a card with two totals is a mistake worth naming.
Json parse_object(std::string_view json) {
  std::set<std::string> seen;
  const auto check = [&](int depth, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::key && depth == 1 && !seen.insert(value.get<std::string>()).second) {
      refuse(value.get<std::string>(), "occurs twice");
    }
    return true;
  };
  Json parsed;
  try {
    parsed = Json::parse(json.begin(), json.end(), check);
  } catch (const Json::exception&) {
    throw UsageError("card: the text is not valid JSON; see configs/cards/default.json for an example");
  }
  if (!parsed.is_object())
    throw UsageError("card: the text is not a JSON object, such as {\"total_bytes\": 6e9}");
  return parsed;
}

auto fields(const Card& c) {
  return std::tie(c.name, c.total_bytes, c.context_bytes, c.rates.fp32_flops, c.rates.fp16_flops,
                  c.rates.fp64_flops, c.rates.memory_bytes_per_s, c.rates.kernel_s, c.link_pinned_bytes_per_s,
                  c.link_pageable_bytes_per_s, c.copy_latency_s, c.launch_s, c.alloc_s, c.free_s,
                  c.synchronize_s, c.poison, c.race_check, c.max_allocation_bytes, c.faults);
}

}  // namespace

bool Card::operator==(const Card& other) const {
  return fields(*this) == fields(other);
}

std::string format_card(const Card& card) {
  return nlohmann::ordered_json{{"name", card.name},
                                {"total_bytes", card.total_bytes},
                                {"context_bytes", card.context_bytes},
                                {"fp32_flops", card.rates.fp32_flops},
                                {"fp16_flops", card.rates.fp16_flops},
                                {"fp64_flops", card.rates.fp64_flops},
                                {"memory_bytes_per_s", card.rates.memory_bytes_per_s},
                                {"link_pinned_bytes_per_s", card.link_pinned_bytes_per_s},
                                {"link_pageable_bytes_per_s", card.link_pageable_bytes_per_s},
                                {"copy_latency_s", card.copy_latency_s},
                                {"launch_s", card.launch_s},
                                {"kernel_s", card.rates.kernel_s},
                                {"alloc_s", card.alloc_s},
                                {"free_s", card.free_s},
                                {"synchronize_s", card.synchronize_s},
                                {"poison", card.poison},
                                {"race_check", card.race_check},
                                {"max_allocation_bytes", card.max_allocation_bytes}}
      .dump();
}

Faults parse_faults(std::string_view json) {
  return faults(parse_object(json));
}

Card parse_card(std::string_view json) {
  Card card;
  const Json object = parse_object(json);
  for (const auto& [key, value] : object.items()) set(card, key, value);
  if (card.context_bytes > card.total_bytes) refuse("context_bytes", "is more than total_bytes");
  return card;
}

}  // namespace lowtide::device::sim
