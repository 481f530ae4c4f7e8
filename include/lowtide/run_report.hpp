// What happened, as measured by the device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lowtide/bytes.hpp"

namespace lowtide {

/// One run of one model. Bytes and seconds; without value where the device has no such notion.
struct JobStats {
  double wall_s = 0;
  std::optional<double> modelled_s;  // simulated card
  std::optional<Bytes> peak_bytes;   // highest use of the device during the job, context included
  std::optional<Bytes> used_after_bytes;
  Bytes h2d_bytes = 0;
  Bytes h2d_copies = 0;
  Bytes d2h_bytes = 0;
  Bytes driver_allocs = 0;
  /// Requests for memory that were met from their planned place, and others. Nothing where places cannot be
  /// planned (cpu, cuda).
  std::optional<std::uint64_t> plan_hits;
  std::optional<std::uint64_t> plan_misses;
  std::optional<Bytes> disk_read_bytes;  // with a RAM cap: bytes of weights read from the archive
  bool first_of_shape = true;            // no job of this model and shape ran before it in the session
};

/// Totals of a session so far.
struct SessionStats {
  std::optional<Bytes> context_bytes;
  std::optional<Bytes> kept_bytes;
  std::optional<Bytes> library_bytes;
  std::optional<Bytes> peak_bytes;
  std::optional<Bytes> reserved_peak_bytes;
  std::optional<Bytes> live_peak_bytes;  // as peak_bytes, of planned regions only what is taken of them
  std::size_t patterns = 0;              // memory patterns that are known
  std::size_t pattern_bytes = 0;         // host memory that they take
  std::optional<double> modelled_s;
  std::optional<double> stall_s;
  Bytes h2d_bytes = 0;
  Bytes h2d_copies = 0;
  Bytes d2h_bytes = 0;
  Bytes pinned_bytes = 0;
  /// With a RAM cap: bytes of weights read from the archive, those that then stay in memory included.
  std::optional<Bytes> disk_read_bytes;
  std::size_t jobs = 0;
};

}  // namespace lowtide
