// What a simulated card can be told to do wrong, and the counters that say when. No LibTorch here.
#pragma once

#include <atomic>
#include <cstdint>

namespace lowtide::device::sim {

/// Each of the first four counts from when the faults were set: the k-th such event fails, once; 0 = none.
struct Faults {
  std::uint64_t allocation = 0;  // out of memory
  std::uint64_t copy = 0;        // over the link: fails before a byte has moved
  std::uint64_t page_lock = 0;  // refused, and remembered as CUDA does: the next launch fails, unless cleared
  std::uint64_t wait = 0;       // a stream's wait for an event: forgotten, as if the program lacked it
  std::uint64_t other_program_bytes = 0;  // of the card's memory, taken by another program ...
  std::uint64_t other_program_at = 0;     // ... from this allocation on; 0 = from the start
  /// Waiting copies are carried out as late as the order allows (0), or at moments chosen by this seed.
  std::uint64_t order_seed = 0;

  bool operator==(const Faults&) const = default;
};

/// How often each kind of event has happened since the faults were set. Thread-safe, but for set().
class FaultCounters {
 public:
  struct Counts {
    std::uint64_t allocations = 0;
    std::uint64_t copies = 0;
    std::uint64_t page_locks = 0;
    std::uint64_t waits = 0;
  };

  /// Counts from zero again. Nothing may be under way on the card.
  void set(const Faults& faults) {
    faults_ = faults;
    allocations_ = copies_ = page_locks_ = waits_ = 0;
    random_ = faults.order_seed;
  }

  /// One more of a kind: does this one fail?
  bool allocation_fails() { return ++allocations_ == faults_.allocation; }
  bool copy_fails() { return ++copies_ == faults_.copy; }
  bool page_lock_fails() { return ++page_locks_ == faults_.page_lock; }
  bool wait_is_forgotten() { return ++waits_ == faults_.wait; }

  /// Memory that another program holds now.
  std::uint64_t other_program_bytes() const {
    return allocations_ >= faults_.other_program_at ? faults_.other_program_bytes : 0;
  }
  bool has_other_program() const { return faults_.other_program_bytes != 0; }
  bool shuffles() const { return faults_.order_seed != 0; }
  /// The next number of the seed's sequence (splitmix64; Steele, Lea, Flood 2014).
  std::uint64_t next_random() {
    std::uint64_t z = random_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  Counts counts() const { return {allocations_, copies_, page_locks_, waits_}; }

 private:
  Faults faults_;
  std::atomic<std::uint64_t> allocations_{0}, copies_{0}, page_locks_{0}, waits_{0};
  std::atomic<std::uint64_t> random_{0};
};

}  // namespace lowtide::device::sim
