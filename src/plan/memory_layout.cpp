#include "plan/memory_layout.hpp"

#include <algorithm>
#include <numeric>

namespace lowtide::plan {
namespace {

/// Neighbours in time that are looked at while a better order is sought; and at the most, where so many
/// blocks live together that even the first order takes too long: such blocks come last, each behind all
/// others.
constexpr std::size_t kMostWork = 10'000'000;
constexpr std::size_t kMostWorkAtAll = 20'000'000;

bool takes_memory(const Lifetime& block) {
  return block.bytes > 0 && block.begin < block.end;
}

/// Which blocks are placed at which time. Time is cut into a tree of halves, and a block is noted at the few
/// nodes that make up its life, so looking up and noting cost little however long a block lives.
class PlacedBlocks {
 public:
  explicit PlacedBlocks(std::uint32_t times) {
    while (leaves_ < times) leaves_ *= 2;
    here_.resize(2 * std::size_t{leaves_});
    below_.resize(2 * std::size_t{leaves_});
  }

  void add(const Lifetime& life, std::uint32_t block) {
    visit(life, [&](std::size_t node) {
      here_[node].push_back(block);
      for (std::size_t above = node / 2; above > 0; above /= 2) {
        if (!below_[above].empty() && below_[above].back() == block) break;  // and so do those above it
        below_[above].push_back(block);
      }
    });
  }

  /// Blocks whose life meets this one; some more than once.
  void collect(const Lifetime& life, std::vector<std::uint32_t>& found) const {
    visit(life, [&](std::size_t node) {
      found.insert(found.end(), below_[node].begin(), below_[node].end());
      for (; node > 0; node /= 2) found.insert(found.end(), here_[node].begin(), here_[node].end());
    });
  }

 private:
  /// The nodes that make up [begin, end).
  template <class Visit>
  void visit(const Lifetime& life, Visit visit) const {
    std::size_t left = std::size_t{life.begin} + leaves_;
    std::size_t right = std::size_t{life.end} + leaves_;
    for (; left < right; left /= 2, right /= 2) {
      if (left % 2 == 1) visit(left++);
      if (right % 2 == 1) visit(--right);
    }
  }

  std::size_t leaves_ = 1;
  std::vector<std::vector<std::uint32_t>> here_;   // per node: blocks that live all its time
  std::vector<std::vector<std::uint32_t>> below_;  // per node: blocks that are noted somewhere below it
};

/// Adds to `work` how many neighbours were looked at.
MemoryLayout place_in_order(std::span<const Lifetime> blocks, std::span<const std::uint32_t> order,
                            std::uint32_t times, std::size_t& work) {
  MemoryLayout layout{.offsets = std::vector<Bytes>(blocks.size(), 0)};
  PlacedBlocks placed(times);
  std::vector<std::uint32_t> others;
  for (const std::uint32_t block : order) {
    if (work > kMostWorkAtAll) {
      layout.offsets[block] = layout.bytes;
      layout.bytes += blocks[block].bytes;
      continue;
    }
    others.clear();
    placed.collect(blocks[block], others);
    work += others.size();
    std::sort(others.begin(), others.end(),
              [&](std::uint32_t a, std::uint32_t b) { return layout.offsets[a] < layout.offsets[b]; });
    Bytes offset = 0;
    for (const std::uint32_t other : others) {
      if (offset + blocks[block].bytes <= layout.offsets[other]) break;
      offset = std::max(offset, layout.offsets[other] + blocks[other].bytes);
    }
    layout.offsets[block] = offset;
    layout.bytes = std::max(layout.bytes, offset + blocks[block].bytes);
    placed.add(blocks[block], block);
  }
  return layout;
}

}  // namespace

Bytes live_peak(std::span<const Lifetime> blocks) {
  std::uint32_t times = 0;
  for (const Lifetime& block : blocks) times = std::max(times, block.end);
  std::vector<std::int64_t> change(std::size_t{times} + 1, 0);
  for (const Lifetime& block : blocks) {
    if (!takes_memory(block)) continue;
    change[block.begin] += static_cast<std::int64_t>(block.bytes);
    change[block.end] -= static_cast<std::int64_t>(block.bytes);
  }
  std::int64_t live = 0, most = 0;
  for (const std::int64_t step : change) most = std::max(most, live += step);
  return static_cast<Bytes>(most);
}

MemoryLayout lay_out(std::span<const Lifetime> blocks) {
  const Bytes least = live_peak(blocks);
  std::uint32_t times = 0;
  std::vector<std::uint32_t> order;
  for (std::uint32_t i = 0; i < blocks.size(); ++i) {
    times = std::max(times, blocks[i].end);
    if (takes_memory(blocks[i])) order.push_back(i);
  }
  const auto life = [&](std::uint32_t i) { return blocks[i].end - blocks[i].begin; };
  const auto by_size = [&](std::uint32_t a, std::uint32_t b) {
    if (blocks[a].bytes != blocks[b].bytes) return blocks[a].bytes > blocks[b].bytes;
    if (life(a) != life(b)) return life(a) > life(b);
    return a < b;
  };
  const auto by_life = [&](std::uint32_t a, std::uint32_t b) {
    return life(a) != life(b) ? life(a) > life(b) : by_size(a, b);
  };
  const auto by_area = [&](std::uint32_t a, std::uint32_t b) {
    const double area_a = static_cast<double>(blocks[a].bytes) * life(a);
    const double area_b = static_cast<double>(blocks[b].bytes) * life(b);
    return area_a != area_b ? area_a > area_b : by_size(a, b);
  };
  const auto by_time = [&](std::uint32_t a, std::uint32_t b) {
    return blocks[a].begin != blocks[b].begin ? blocks[a].begin < blocks[b].begin : by_size(a, b);
  };
  std::size_t work = 0;
  std::sort(order.begin(), order.end(), by_size);
  MemoryLayout layout = place_in_order(blocks, order, times, work);
  MemoryLayout best = layout;
  const auto attempt = [&](const auto& before) {
    if (best.bytes == least || work > kMostWork) return;
    std::vector<std::uint32_t> other = order;
    std::sort(other.begin(), other.end(), before);
    MemoryLayout candidate = place_in_order(blocks, other, times, work);
    if (candidate.bytes < best.bytes) best = std::move(candidate);
  };
  attempt(by_area);
  attempt(by_life);
  attempt(by_time);
  // Whatever ended up beyond the bound was placed too late: it goes first, again and again.
  while (best.bytes > least && work <= kMostWork) {
    const auto beyond = [&](std::uint32_t i) { return layout.offsets[i] + blocks[i].bytes > least; };
    std::stable_partition(order.begin(), order.end(), beyond);
    work += order.size();
    layout = place_in_order(blocks, order, times, work);
    if (layout.bytes < best.bytes) best = layout;
  }
  return best;
}

}  // namespace lowtide::plan
