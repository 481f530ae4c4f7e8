// Loads the simulated card for the tests of this folder.
#pragma once

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <array>
#include <string>

#include "device/sim/sim_entry.hpp"

namespace lowtide::test {

struct OpenResult {
  device::DeviceExtras* card = nullptr;
  std::string error;
};

inline OpenResult open_sim(const std::string& card_json) {
  static void* const library = dlopen(LOWTIDE_SIM_LIBRARY, RTLD_NOW | RTLD_GLOBAL);
  REQUIRE_MESSAGE(library != nullptr, dlerror());
  static auto* const open = reinterpret_cast<decltype(&lowtide_sim_open)>(dlsym(library, "lowtide_sim_open"));
  REQUIRE((open != nullptr));
  std::array<char, 512> error{};
  OpenResult result;
  result.card = open(card_json.c_str(), error.data(), error.size());
  result.error = error.data();
  return result;
}

/// The default card, or one with other keys, with counters at zero and nothing allocated.
inline device::DeviceExtras& fresh_card(const std::string& card_json = "{}") {
  const OpenResult opened = open_sim(card_json);
  REQUIRE_MESSAGE(opened.card != nullptr, opened.error);
  REQUIRE(opened.card->counters().used_bytes == opened.card->context_bytes());
  return *opened.card;
}

}  // namespace lowtide::test
