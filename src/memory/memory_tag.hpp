// Every byte has a reason: what device memory is used for.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace lowtide::memory {

enum class MemoryTag : std::uint8_t { context, weights, activations };
inline constexpr std::array<std::string_view, 3> kTagNames{"context", "weights", "activations and workspace"};

}  // namespace lowtide::memory
