// How several models share one slab for weights.
//
// Either each model uses all of it while it runs, and finds nothing of its own when its turn comes again; or
// each has a window of its own, keeps its residents there, and has less room to run in.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "lowtide/bytes.hpp"

namespace lowtide::plan {

/// A window that one model could have, and the seconds that all its jobs then take together.
struct WindowOption {
  Bytes bytes = 0;
  double seconds = 0;
};

/// For each model the index of one of its options, such that together they fit into `room` and take the least
/// time (of equals, the fewest bytes); nothing where not even the smallest fit. The options of a model rise
/// in bytes. Exact: of the partial choices only those are kept that no other one beats in bytes and in time.
std::optional<std::vector<std::size_t>> divide_slab(const std::vector<std::vector<WindowOption>>& options,
                                                    Bytes room);

}  // namespace lowtide::plan
