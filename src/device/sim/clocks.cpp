#include "device/sim/clocks.hpp"

#include <algorithm>

namespace lowtide::device::sim {

void Clocks::set_card(const Card& card) {
  card_ = card;
  reset();
}

void Clocks::reset() {
  ++epoch_;
  host_ = 0;
  std::fill(streams_.begin(), streams_.end(), 0.0);
  link_ = {};
  compute_busy_ = link_busy_ = stalled_ = 0;
}

double& Clocks::at(StreamNumber stream) {
  const auto index = static_cast<std::size_t>(stream);
  if (index >= streams_.size()) streams_.resize(index + 1, 0.0);
  return streams_[index];
}

void Clocks::kernel(StreamNumber stream, double seconds) {
  double& clock = at(stream);
  clock = std::max(clock, host_) + seconds;
  compute_busy_ += seconds;
}

void Clocks::copy(StreamNumber stream, const CopyTiming& copy) {
  launch();
  double& clock = at(stream);
  double& link = link_[static_cast<std::size_t>(copy.direction)];
  const double rate = copy.pinned ? card_.link_pinned_bytes_per_s : card_.link_pageable_bytes_per_s;
  const double busy = card_.copy_latency_s + static_cast<double>(copy.bytes) / rate;
  clock = link = std::max({host_, clock, link}) + busy;
  link_busy_ += busy;
  if (copy.blocking) host_ = clock + card_.synchronize_s;
}

TimeStamp Clocks::stamp(StreamNumber stream) {
  return {std::max(at(stream), host_), epoch_};
}

void Clocks::stream_waits(StreamNumber stream, const TimeStamp& stamp) {
  double& clock = at(stream);
  const double until = seconds(stamp);
  // Before the host's present time the stream could not have done anything for the work that is submitted
  // from now on.
  if (stream == kDefaultStream) stalled_ += std::max(0.0, until - std::max(clock, host_));
  clock = std::max(clock, until);
}

void Clocks::host_waits(const TimeStamp& stamp) {
  host_ = std::max(host_, seconds(stamp)) + card_.synchronize_s;
}

void Clocks::host_waits_for_stream(StreamNumber stream) {
  host_ = std::max(host_, at(stream)) + card_.synchronize_s;
}

void Clocks::host_waits_for_all() {
  host_ = latest() + card_.synchronize_s;
}

void Clocks::driver_free() {
  host_ = latest() + card_.free_s;
}

bool Clocks::passed(const TimeStamp& stamp) const {
  return seconds(stamp) <= host_;
}

double Clocks::latest() const {
  return std::max(host_, *std::max_element(streams_.begin(), streams_.end()));
}

}  // namespace lowtide::device::sim
