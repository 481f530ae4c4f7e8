#include "session/step_recorder.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace lowtide::detail {

StepRecorder::StepRecorder(const device::Device& device, std::size_t steps, double alloc_s)
    : device_(device), alloc_s_(alloc_s), done_(steps, false) {
  memory_.steps.resize(steps);
  for (std::size_t i = 0; i < steps; ++i) {
    const c10::DeviceType type = device.torch().type();
    marks_.push_back({c10::Event(type, c10::EventFlag::BACKEND_DEFAULT),
                      c10::Event(type, c10::EventFlag::BACKEND_DEFAULT)});
  }
  const c10::impl::VirtualGuardImpl guard(device.torch().type());
  origin_.emplace(device.torch().type(), c10::EventFlag::BACKEND_DEFAULT);
  origin_->record(guard.getStream(device.torch()));
  origin_host_ = device.extras()->host_seconds();
}

void StepRecorder::look_at_window() {
  const Bytes peak = device_.extras()->window_peak();
  window_peak_ = std::max(window_peak_, peak);
  peak_ = std::max(peak_, peak - std::min(peak, others_));
}

void StepRecorder::enter() {
  others_ = device_.extras()->counters().used_bytes - own_;
  window_peak_ = std::max(window_peak_, device_.extras()->window_peak());
  device_.extras()->start_window();
}

void StepRecorder::leave() {
  look_at_window();
  const Bytes used = device_.extras()->counters().used_bytes;
  own_ = used - std::min(used, others_);
}

void StepRecorder::inputs_are_there() {
  const Bytes used = device_.extras()->counters().used_bytes;
  memory_.inputs = used - std::min(used, others_);
}

void StepRecorder::before(std::size_t step) {
  look_at_window();
  device_.extras()->start_window();
  driver_allocs_ = device_.extras()->counters().driver_allocs;
  marks_[step].begin.record(c10::impl::VirtualGuardImpl(device_.torch().type()).getStream(device_.torch()));
  marks_[step].host_begin = device_.extras()->host_seconds();
}

void StepRecorder::after(std::size_t step) {
  Marks& marks = marks_[step];
  marks.host_end = device_.extras()->host_seconds();
  marks.end.record(c10::impl::VirtualGuardImpl(device_.torch().type()).getStream(device_.torch()));
  const device::DeviceCounters counters = device_.extras()->counters();
  marks.driver_s = alloc_s_ * static_cast<double>(counters.driver_allocs - driver_allocs_);
  look_at_window();
  const Bytes peak = device_.extras()->window_peak();
  memory_.steps[step] = {peak - std::min(peak, others_),
                         counters.used_bytes - std::min(counters.used_bytes, others_)};
  done_[step] = true;
}

std::optional<LearnedShape> StepRecorder::finish(const JobProfile& described) {
  if (std::find(done_.begin(), done_.end(), false) != done_.end()) return std::nullopt;
  LearnedShape shape{peak_, described};
  shape.profile.memory = memory_;
  for (std::size_t i = 0; i < marks_.size(); ++i) {
    plan::StepCost& cost = shape.profile.costs[i];
    if (cost.upload_s > 0 || cost.waits) continue;
    constexpr double kSeconds = 1e-3;
    const double begin = origin_host_ + origin_->elapsedTime(marks_[i].begin) * kSeconds;
    const double end = origin_host_ + origin_->elapsedTime(marks_[i].end) * kSeconds;
    // Where the device was idle it began when the host had submitted the work. A step of several kernels then
    // shows the last one only: the description fills in, as far as the time between the marks allows.
    const double busy = end - std::max(begin, marks_[i].host_end);
    cost.kernel_s =
        begin >= marks_[i].host_end ? end - begin : std::max(busy, std::min(cost.kernel_s, end - begin));
    cost.host_s = marks_[i].host_end - marks_[i].host_begin - marks_[i].driver_s;
  }
  return shape;
}

}  // namespace lowtide::detail
