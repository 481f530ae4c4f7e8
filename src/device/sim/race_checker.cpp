#include "device/sim/race_checker.hpp"

#include <iterator>

namespace lowtide::device::sim {
namespace {

/// Stands for whatever the stream did with a block's memory before the block was allocated.
constexpr const char* kBeforeAllocation = "earlier work";

std::uintptr_t begin_of(const MemoryRange& range) {
  return reinterpret_cast<std::uintptr_t>(range.begin);
}

}  // namespace

void RaceChecker::restart(bool enabled) {
  *this = RaceChecker();
  enabled_ = enabled;
}

std::uint64_t RaceChecker::submit(StreamNumber stream) {
  const auto index = static_cast<std::size_t>(stream);
  if (host_seen_[index] != host_version_) {  // what the host has waited for lies before what it submits
    streams_[index].join(host_);
    host_seen_[index] = host_version_;
  }
  return streams_[index].advance(stream);
}

std::optional<MemoryUse> RaceChecker::unordered(const Uses& uses, const VectorClock& clock,
                                                bool writes) const {
  if (!ordered(uses.write, clock)) return uses.write;
  if (!writes) return std::nullopt;
  for (const MemoryUse& read : uses.reads) {
    if (!ordered(read, clock)) return read;
  }
  return std::nullopt;
}

void RaceChecker::split(std::uintptr_t at) {
  auto after = shadow_.lower_bound(at);
  if (after == shadow_.begin()) return;
  const auto around = std::prev(after);
  if (around->second.end <= at) return;
  Uses upper = around->second;
  around->second.end = at;
  shadow_.emplace_hint(after, at, std::move(upper));
}

RaceChecker::Shadow::iterator RaceChecker::first_overlap(std::uintptr_t begin) {
  auto it = shadow_.upper_bound(begin);
  if (it != shadow_.begin() && std::prev(it)->second.end > begin) --it;
  return it;
}

void RaceChecker::note_read(Uses& uses, const MemoryUse& use) {
  for (MemoryUse& read : uses.reads) {
    if (read.stream == use.stream) return void(read = use);
  }
  uses.reads.push_back(use);
}

std::optional<MemoryUse> RaceChecker::touch(MemoryRange range, const MemoryUse& use) {
  if (!enabled_ || range.bytes == 0) return std::nullopt;
  const std::uintptr_t begin = begin_of(range), end = begin + range.bytes;
  const VectorClock& now = streams_[static_cast<std::size_t>(use.stream)];
  std::optional<MemoryUse> conflict;
  auto it = first_overlap(begin);
  if (it != shadow_.end() && it->first == begin && it->second.end == end) {  // as nearly always
    conflict = unordered(it->second, now, use.writes);
    if (use.writes) {
      it->second.write = use;
      it->second.reads.clear();
    } else {
      note_read(it->second, use);
    }
    return conflict;
  }
  split(begin);
  split(end);
  std::uintptr_t covered = begin;
  for (it = shadow_.lower_bound(begin); it != shadow_.end() && it->first < end;) {
    if (!conflict) conflict = unordered(it->second, now, use.writes);
    if (use.writes) {
      it = shadow_.erase(it);
      continue;
    }
    if (it->first > covered) shadow_.emplace_hint(it, covered, Uses{it->first, {}, {use}});
    note_read(it->second, use);
    covered = it->second.end;
    ++it;
  }
  if (use.writes) {
    shadow_.emplace_hint(it, begin, Uses{end, use, {}});
  } else if (covered < end) {
    shadow_.emplace_hint(it, covered, Uses{end, {}, {use}});
  }
  return conflict;
}

std::optional<MemoryUse> RaceChecker::host_touches(MemoryRange range, bool writes) {
  if (!enabled_ || range.bytes == 0) return std::nullopt;
  const std::uintptr_t begin = begin_of(range);
  for (auto it = first_overlap(begin); it != shadow_.end() && it->first < begin + range.bytes; ++it) {
    if (const auto conflict = unordered(it->second, host_, writes)) return conflict;
  }
  return std::nullopt;
}

void RaceChecker::allocated(MemoryRange range, StreamNumber stream) {
  if (!enabled_ || range.bytes == 0) return;
  const std::uintptr_t begin = begin_of(range);
  const std::uint64_t tick = clock(stream)[stream];
  shadow_.insert_or_assign(begin, Uses{begin + range.bytes, {stream, tick, true, kBeforeAllocation, ""}, {}});
}

std::optional<MemoryUse> RaceChecker::forget(MemoryRange range, const VectorClock& clock,
                                             std::uint64_t excused) {
  if (!enabled_ || range.bytes == 0) return std::nullopt;
  const std::uintptr_t begin = begin_of(range), end = begin + range.bytes;
  split(begin);
  split(end);
  const auto counts = [&](const MemoryUse& use) {
    return !ordered(use, clock) && (excused >> use.stream & 1) == 0;
  };
  std::optional<MemoryUse> conflict;
  auto it = shadow_.lower_bound(begin);
  while (it != shadow_.end() && it->first < end) {
    if (counts(it->second.write)) conflict = it->second.write;
    for (const MemoryUse& read : it->second.reads) {
      if (counts(read)) conflict = read;
    }
    it = shadow_.erase(it);
  }
  return conflict;
}

std::optional<MemoryUse> RaceChecker::released(MemoryRange range, StreamNumber stream,
                                               std::uint64_t recorded) {
  if (!enabled_ || range.bytes == 0) return std::nullopt;
  const auto it = shadow_.find(begin_of(range));
  if (it != shadow_.end() && it->second.end == begin_of(range) + range.bytes &&
      it->second.write.stream == stream && it->second.reads.empty()) {  // nobody else has seen it
    shadow_.erase(it);
    return std::nullopt;
  }
  VectorClock known = clock(stream);
  known.join(host_);
  return forget(range, known, recorded | std::uint64_t{1} << stream);
}

std::optional<MemoryUse> RaceChecker::retired(MemoryRange range) {
  return forget(range, host_, 0);
}

void RaceChecker::stream_waits(StreamNumber stream, const VectorClock& clock) {
  streams_[static_cast<std::size_t>(stream)].join(clock);
}

void RaceChecker::host_waits(const VectorClock& clock) {
  host_.join(clock);
  ++host_version_;
}

void RaceChecker::host_waits_for_all() {
  for (const VectorClock& stream : streams_) host_.join(stream);
  ++host_version_;
}

std::string RaceChecker::name(StreamNumber stream) {
  return stream == kDefaultStream ? "the default stream" : "stream " + std::to_string(stream);
}

std::string RaceChecker::describe(const MemoryUse& use) {
  if (use.work == kBeforeAllocation)
    return "the work of " + name(use.stream) + " that may still use this memory from before its allocation";
  std::string text = use.writes ? "its write by " : "its read by ";
  text += use.work;
  if (*use.argument != '\0') text += std::string(" (argument '") + use.argument + "')";
  return text + " on " + name(use.stream);
}

}  // namespace lowtide::device::sim
