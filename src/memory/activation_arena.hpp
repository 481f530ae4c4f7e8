// Memory patterns: what a job asks for, and where each of it is to lie.
//
// The first job of a shape is recorded: which step asks for how many bytes, and when they are given back.
// From that a pattern is made, in which requests that never live together share bytes. In the next job of the
// shape each request is answered from its planned place; what nobody foresaw goes to the overflow region and
// is counted.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "device/placement.hpp"
#include "lowtide/bytes.hpp"

namespace lowtide::memory {

/// A step of a job at its place in the run. Chosen by whoever runs the job; equal in equal runs.
using VisitId = std::uint64_t;

/// What a run asked for, in order. Time counts requests.
struct RequestTrace {
  struct Request {
    Bytes bytes = 0;          // a multiple of the granule
    std::uint32_t until = 0;  // requests made when it was given back
  };
  struct Visit {
    VisitId id = 0;
    std::uint32_t first = 0;  // of its requests, which end where the next visit's begin
  };
  std::vector<Request> requests;
  std::vector<Visit> visits;  // only those that ask for something
};

/// Where everything that a run asks for is to lie. Immutable, shared between runs.
class MemoryPattern {
 public:
  struct Request {
    Bytes bytes = 0;
    Bytes offset = 0;  // in the region
  };
  /// `offsets` per request of the trace, so that what lives together does not overlap. `live_peak`: the most
  /// that is alive at one time.
  MemoryPattern(const RequestTrace& trace, std::span<const Bytes> offsets, Bytes region_bytes,
                Bytes live_peak);

  /// What the visit asks for, in order; nothing for a visit that is not known.
  std::span<const Request> requests(VisitId visit) const;
  std::size_t request_count() const { return requests_.size(); }
  Bytes region_bytes() const { return region_bytes_; }
  Bytes live_peak() const { return live_peak_; }
  /// Host memory that it takes, about.
  std::size_t host_bytes() const;

 private:
  struct Range {
    std::uint32_t first = 0;
    std::uint32_t count = 0;
  };
  std::vector<Request> requests_;
  std::unordered_map<VisitId, Range> visits_;
  Bytes region_bytes_;
  Bytes live_peak_;
};

/// Answers the requests of one run at a time. enter() and leave() come from the thread that runs the steps,
/// while no operator works.
class ActivationArena final : public device::Placement {
 public:
  enum class Mode : std::uint8_t { counting, recording, placing };

  /// Every request is unplanned.
  void start_counting() { restart(Mode::counting); }
  /// The same, and what happens is recorded.
  void start_recording() { restart(Mode::recording); }
  /// Requests get their planned places.
  void start_placing(std::shared_ptr<const MemoryPattern> pattern);

  /// Between enter() and leave(), what is asked for belongs to this visit; a visit that is entered again (a
  /// step is repeated) begins anew.
  void enter(VisitId visit);
  void leave() { in_step_ = false; }
  /// What was recorded from start_recording() on; requests that are still alive are taken to live to the end.
  /// Empty where the host had no memory for it.
  RequestTrace take_trace();

  std::uint64_t hits() const { return hits_; }
  std::uint64_t misses() const { return misses_; }
  /// Of the first miss of a placing run: which visit, how many bytes. Bytes 0: there was none.
  struct Miss {
    VisitId visit = 0;
    Bytes bytes = 0;
  };
  const Miss& first_miss() const { return first_miss_; }

  Answer place(std::uint64_t bytes) noexcept override;
  void answered(const void* data, std::uint64_t bytes, const Answer& answer) noexcept override;
  void given_back(const void* data) noexcept override;

 private:
  void restart(Mode mode);
  bool is_free(Bytes offset, Bytes bytes) const;
  void record(const void* data, Bytes bytes);

  Mode mode_ = Mode::counting;
  bool in_step_ = false;
  VisitId visit_ = 0;
  std::uint64_t hits_ = 0;
  std::uint64_t misses_ = 0;
  Miss first_miss_;
  // recording
  RequestTrace trace_;
  bool visit_is_noted_ = false;
  bool incomplete_ = false;                               // the host had no memory to note something
  std::unordered_map<const void*, std::uint32_t> alive_;  // request
  // placing
  std::shared_ptr<const MemoryPattern> pattern_;
  std::span<const MemoryPattern::Request> expected_;  // of the present visit
  std::vector<bool> taken_;                           // per expected request
  std::size_t chosen_ = 0;                            // by place(), for answered()
  struct Placed {
    const void* data;
    Bytes offset;
    Bytes end;
  };
  std::vector<Placed> placed_;  // few live at once; room for all of the pattern, so that noting cannot fail
};

/// One visit; without an arena it does nothing.
class ArenaVisit {
 public:
  ArenaVisit(ActivationArena* arena, VisitId visit) : arena_(arena) {
    if (arena_ != nullptr) arena_->enter(visit);
  }
  ~ArenaVisit() {
    if (arena_ != nullptr) arena_->leave();
  }
  ArenaVisit(const ArenaVisit&) = delete;
  ArenaVisit& operator=(const ArenaVisit&) = delete;

 private:
  ActivationArena* arena_;
};

}  // namespace lowtide::memory
