// Parts of a file from the ring into slots in host memory, on a thread of its own: the thread that computes
// neither copies nor waits for more than it needs.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "memory/read_ahead.hpp"

namespace lowtide::memory {

/// All but the thread inside is for one thread.
class SlotFiller {
 public:
  /// Takes all parts of `reader`, which must outlive it.
  explicit SlotFiller(ReadAhead& reader);
  /// Stops the reader, whatever is left; nothing is written to a slot afterwards.
  ~SlotFiller();
  SlotFiller(const SlotFiller&) = delete;
  SlotFiller& operator=(const SlotFiller&) = delete;

  /// The next part goes to `to`, which is free.
  void add(std::byte* to);
  /// So many parts have been added.
  std::size_t added() const;
  /// Waits until the first `parts` of those added are in their slots. Throws ArchiveError as
  /// ReadAhead::next().
  void wait_for(std::size_t parts);

 private:
  void work() noexcept;
  std::byte* next_place();

  ReadAhead& reader_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::byte*> places_;  // added and not begun
  std::size_t added_ = 0;
  std::size_t filled_ = 0;
  std::exception_ptr error_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace lowtide::memory
