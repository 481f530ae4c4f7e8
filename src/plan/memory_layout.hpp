// Blocks of memory with known lifetimes, laid out in one region so that those that live at the same time do
// not overlap.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lowtide/bytes.hpp"

namespace lowtide::plan {

/// A block that is alive at the times [begin, end). Its bytes are a multiple of the granule.
struct Lifetime {
  Bytes bytes = 0;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};

struct MemoryLayout {
  std::vector<Bytes> offsets;  // per block, in the order given
  Bytes bytes = 0;             // of the region
};

/// The most that is alive at one time: no layout can be smaller.
Bytes live_peak(std::span<const Lifetime> blocks);

/// Greedy by size: the largest blocks first, each at the lowest offset that is free during all its life;
/// where that does not reach live_peak(), other orders (longest life first, in order of time, what came to
/// lie beyond the bound first) are tried and the smallest layout wins. Blocks without bytes or without life
/// take nothing.
///
/// Greedy by size: Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020,
/// https://arxiv.org/abs/2001.03288.
MemoryLayout lay_out(std::span<const Lifetime> blocks);

}  // namespace lowtide::plan
