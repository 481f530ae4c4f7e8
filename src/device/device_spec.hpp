// "cpu", "cuda", "cuda:1", "sim", "sim:CARD": what a user may write after --device. No LibTorch here.
#pragma once

#include <string>
#include <string_view>

#include "lowtide/bytes.hpp"

namespace lowtide::device {

enum class DeviceKind { cpu, cuda, sim };

/// "cpu", "cuda", "sim".
const char* kind_name(DeviceKind kind);

/// A device as asked for, not yet opened.
struct DeviceSpec {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;          // cuda
  std::string card_json;  // sim: the card's description, complete
};

/// Throws UsageError for unknown words, unreadable or malformed cards. CARD is a name in configs/cards/, a
/// path to a .json file, or a size such as 6GiB (the default card with that much memory).
DeviceSpec parse_device_spec(std::string_view text);

/// The description of the default card.
std::string default_card_json();

}  // namespace lowtide::device
