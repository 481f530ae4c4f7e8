#include "memory/activation_arena.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace lowtide::memory {

MemoryPattern::MemoryPattern(const RequestTrace& trace, std::span<const Bytes> offsets, Bytes region_bytes,
                             Bytes live_peak)
    : region_bytes_(region_bytes), live_peak_(live_peak) {
  for (std::size_t i = 0; i < trace.requests.size(); ++i)
    requests_.push_back({trace.requests[i].bytes, offsets[i]});
  for (std::size_t v = 0; v < trace.visits.size(); ++v) {
    const std::uint32_t first = trace.visits[v].first;
    const std::size_t end = v + 1 < trace.visits.size() ? trace.visits[v + 1].first : requests_.size();
    visits_[trace.visits[v].id] = {first, static_cast<std::uint32_t>(end - first)};
  }
}

std::span<const MemoryPattern::Request> MemoryPattern::requests(VisitId visit) const {
  const auto found = visits_.find(visit);
  if (found == visits_.end()) return {};
  return std::span(requests_).subspan(found->second.first, found->second.count);
}

std::size_t MemoryPattern::host_bytes() const {
  constexpr std::size_t kNode = sizeof(std::pair<const VisitId, Range>) + 2 * sizeof(void*);
  return sizeof(*this) + requests_.capacity() * sizeof(Request) + visits_.size() * kNode;
}

void ActivationArena::restart(Mode mode) {
  mode_ = mode;
  in_step_ = false;
  hits_ = misses_ = 0;
  first_miss_ = {};
  trace_ = {};
  alive_.clear();
  pattern_ = nullptr;
  expected_ = {};
  taken_.clear();
  placed_.clear();
  incomplete_ = false;
}

void ActivationArena::start_placing(std::shared_ptr<const MemoryPattern> pattern) {
  restart(Mode::placing);
  pattern_ = std::move(pattern);
  placed_.reserve(pattern_->request_count());
}

void ActivationArena::enter(VisitId visit) {
  in_step_ = true;
  visit_ = visit;
  if (mode_ == Mode::recording) visit_is_noted_ = false;
  if (mode_ != Mode::placing) return;
  expected_ = pattern_->requests(visit);
  taken_.assign(expected_.size(), false);
}

RequestTrace ActivationArena::take_trace() {
  for (const auto& [data, request] : alive_)
    trace_.requests[request].until = static_cast<std::uint32_t>(trace_.requests.size());
  alive_.clear();
  if (incomplete_) trace_ = {};
  return std::exchange(trace_, {});
}

bool ActivationArena::is_free(Bytes offset, Bytes bytes) const {
  return std::none_of(placed_.begin(), placed_.end(), [&](const Placed& other) {
    return other.offset < offset + bytes && offset < other.end;
  });
}

/// Several threads of one operator may ask in any order: the first place that has the size.
device::Placement::Answer ActivationArena::place(std::uint64_t bytes) noexcept {
  if (!in_step_) return {.kind = Kind::foreign};
  for (std::size_t i = 0; i < expected_.size(); ++i) {
    if (taken_[i] || expected_[i].bytes != bytes) continue;
    chosen_ = i;
    return {is_free(expected_[i].offset, bytes) ? Kind::planned : Kind::occupied, expected_[i].offset};
  }
  return {.kind = Kind::unplanned};
}

void ActivationArena::answered(const void* data, std::uint64_t bytes, const Answer& answer) noexcept {
  if (answer.kind == Kind::planned) {
    ++hits_;
    taken_[chosen_] = true;
    placed_.push_back({data, answer.offset, answer.offset + bytes});
    return;
  }
  ++misses_;
  if (mode_ == Mode::placing && first_miss_.bytes == 0) first_miss_ = {visit_, bytes};
  if (mode_ != Mode::recording || incomplete_) return;
  try {
    record(data, bytes);
  } catch (const std::bad_alloc&) {
    incomplete_ = true;
  }
}

void ActivationArena::record(const void* data, Bytes bytes) {
  const auto request = static_cast<std::uint32_t>(trace_.requests.size());
  if (!std::exchange(visit_is_noted_, true)) trace_.visits.push_back({visit_, request});
  trace_.requests.push_back({bytes, 0});
  alive_[data] = request;
}

void ActivationArena::given_back(const void* data) noexcept {
  if (mode_ == Mode::placing) {
    const auto found =
        std::find_if(placed_.begin(), placed_.end(), [&](const Placed& place) { return place.data == data; });
    if (found != placed_.end()) placed_.erase(found);
  } else if (mode_ == Mode::recording) {
    const auto found = alive_.find(data);
    if (found == alive_.end()) return;
    trace_.requests[found->second].until = static_cast<std::uint32_t>(trace_.requests.size());
    alive_.erase(found);
  }
}

}  // namespace lowtide::memory
