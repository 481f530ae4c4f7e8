// The card's virtual clocks: the host, every stream and each direction of the link have a time. Nothing
// sleeps and nothing looks at real time, so two equal runs give equal numbers. No LibTorch here.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "device/sim/card.hpp"

namespace lowtide::device::sim {

using StreamNumber = std::int64_t;
inline constexpr StreamNumber kDefaultStream = 0;   // where compute runs unless told otherwise
inline constexpr StreamNumber kPooledStreams = 32;  // as CUDA: more streams share these
inline constexpr std::size_t kStreamCount = 1 + kPooledStreams;

enum class Direction : std::uint8_t { to_card, to_host };

struct CopyTiming {
  Direction direction = Direction::to_card;
  std::uint64_t bytes = 0;
  bool pinned = false;    // full link rate
  bool blocking = false;  // the host waits for the end
};

/// A point on a stream's time line.
struct TimeStamp {
  double seconds = 0;
  std::uint64_t epoch = 0;  // stamps from before a reset count as long past
};

/// Seconds since the last reset. Not thread-safe: SimCard guards it.
class Clocks {
 public:
  /// Takes over a card's rates and starts from zero.
  void set_card(const Card& card);
  /// Back to zero; older stamps count as past.
  void reset();

  /// The host submits something: an operator, a copy.
  void launch() { host_ += card_.launch_s; }
  /// The allocator asked the driver for memory.
  void driver_alloc() { host_ += card_.alloc_s; }
  /// The allocator gave memory back to the driver, which waits for all work first.
  void driver_free();
  /// A kernel starts when its stream is free and the host has submitted it.
  void kernel(StreamNumber stream, double seconds);
  /// A copy also waits for its direction of the link.
  void copy(StreamNumber stream, const CopyTiming& copy);

  TimeStamp stamp(StreamNumber stream);
  /// The stream does nothing before `stamp`. What the default stream loses by that is stall time.
  void stream_waits(StreamNumber stream, const TimeStamp& stamp);
  /// Every wait of the host costs it the card's synchronize_s beside the time it takes.
  void host_waits(const TimeStamp& stamp);
  void host_waits_for_stream(StreamNumber stream);
  void host_waits_for_all();
  /// Has the host's time passed the stamp?
  bool passed(const TimeStamp& stamp) const;
  /// Has the host's time passed all work of the stream?
  bool stream_idle(StreamNumber stream) { return at(stream) <= host_; }
  /// A fruitless question costs the host a little, so that polling loops end.
  void poll() { host_ += kPollSeconds; }

  double host() const { return host_; }
  /// Latest of all clocks.
  double latest() const;
  double compute_busy() const { return compute_busy_; }
  double link_busy() const { return link_busy_; }
  double stalled() const { return stalled_; }
  const Card& card() const { return card_; }

 private:
  static constexpr double kPollSeconds = 1e-6;

  double& at(StreamNumber stream);
  double seconds(const TimeStamp& stamp) const { return stamp.epoch == epoch_ ? stamp.seconds : 0; }

  Card card_;
  std::uint64_t epoch_ = 0;
  double host_ = 0;
  std::vector<double> streams_{0};
  std::array<double, 2> link_{};
  double compute_busy_ = 0;
  double link_busy_ = 0;
  double stalled_ = 0;
};

}  // namespace lowtide::device::sim
