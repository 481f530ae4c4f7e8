#include "plan/slab_windows.hpp"

#include <algorithm>
#include <tuple>

namespace lowtide::plan {
namespace {

struct Partial {
  Bytes bytes = 0;
  double seconds = 0;
  std::vector<std::size_t> chosen;
};

/// Leaves those that take more bytes only for less time, rising in bytes.
void drop_beaten(std::vector<Partial>& partials) {
  std::stable_sort(partials.begin(), partials.end(), [](const Partial& a, const Partial& b) {
    return std::tie(a.bytes, a.seconds) < std::tie(b.bytes, b.seconds);
  });
  std::vector<Partial> kept;
  for (Partial& partial : partials) {
    if (kept.empty() || partial.seconds < kept.back().seconds) kept.push_back(std::move(partial));
  }
  partials = std::move(kept);
}

}  // namespace

std::optional<std::vector<std::size_t>> divide_slab(const std::vector<std::vector<WindowOption>>& options,
                                                    Bytes room) {
  std::vector<Partial> partials(1);
  for (const std::vector<WindowOption>& of_model : options) {
    std::vector<Partial> longer;
    for (const Partial& partial : partials) {
      for (std::size_t i = 0; i < of_model.size(); ++i) {
        if (of_model[i].bytes > room - partial.bytes) break;
        Partial next = partial;
        next.bytes += of_model[i].bytes;
        next.seconds += of_model[i].seconds;
        next.chosen.push_back(i);
        longer.push_back(std::move(next));
      }
    }
    drop_beaten(longer);
    partials = std::move(longer);
  }
  if (partials.empty()) return std::nullopt;
  return std::move(partials.back().chosen);
}

}  // namespace lowtide::plan
