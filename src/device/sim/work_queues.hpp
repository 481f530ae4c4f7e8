// Copies that a stream has accepted but not carried out. They are carried out only when something orders
// them: an event that is waited for, a synchronisation, or later work on the same stream. A forgotten wait
// therefore reads old or poisoned bytes every time, instead of now and then. No LibTorch here.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

#include "device/sim/clocks.hpp"

namespace lowtide::device::sim {

/// Keeps the bytes it touches alive, so that memory freed by its owner lives on until the copy is done.
using DeferredWork = std::function<void()>;

/// Thread-safe; work of one stream is carried out in order, by the thread that asks for it.
class WorkQueues {
 public:
  void push(StreamNumber stream, DeferredWork work);
  /// How many pieces of work the stream has accepted so far: the position of an event recorded now.
  std::uint64_t accepted(StreamNumber stream) const;
  bool done(StreamNumber stream, std::uint64_t position) const;

  /// Carries out the stream's work up to `position`.
  void run_until(StreamNumber stream, std::uint64_t position);
  /// All of it. Every operator asks, and nearly always there is nothing to do.
  void run(StreamNumber stream) {
    if (waiting_.load(std::memory_order_acquire) != 0) run_until(stream, UINT64_MAX);
  }
  void run_all();
  /// Carries out some of what waits, in an order that is allowed but nobody asked for: `random` decides.
  void run_some(std::uint64_t random);

 private:
  struct Queue {
    std::uint64_t finished = 0;  // pieces taken out since the beginning
    std::deque<DeferredWork> waiting;
  };
  /// Moves finished work to `spent`, whose owner destroys it after unlocking: destructors may free tensors.
  void drain(Queue& queue, std::uint64_t position, std::vector<DeferredWork>& spent);

  mutable std::mutex mutex_;
  std::vector<Queue> queues_;
  std::atomic<std::size_t> waiting_{0};  // over all queues
};

}  // namespace lowtide::device::sim
