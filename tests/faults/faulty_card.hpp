// A session on the simulated card while the card misbehaves on purpose.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lowtide/lowtide.hpp"

namespace lowtide::test {

/// What happened on the card since the last inject().
struct CardEvents {
  std::uint64_t used_bytes = 0;
  std::uint64_t allocations = 0;
  std::uint64_t copies = 0;
  std::uint64_t page_locks = 0;
  std::uint64_t waits = 0;
};

/// Sets the card's faults, an object as {"allocation": 3}; "{}" for none. Counts from zero. The simulated
/// card has been opened.
void inject(const std::string& faults);
CardEvents card_events();

/// An archive of tools/get_models with its first sample input and what the cpu makes of it.
struct Subject {
  explicit Subject(const std::string& archive_name);

  std::string name;
  Model model;
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> expected;
  InputShapes shapes;
  /// A cap under which weights are streamed through few slots: a little above the smallest.
  Bytes tight_cap = 0;
};

/// A session with the simulated card, under the subject's tight cap. One thread: thousands of small jobs.
SessionOptions tight(const Subject& subject, const std::string& device = "sim");

}  // namespace lowtide::test
