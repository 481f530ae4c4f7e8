// Measures one job step by step: memory beside the weights and time.
#pragma once

#include <c10/core/Event.h>

#include <vector>

#include "device/device.hpp"
#include "session/learned_shapes.hpp"

namespace lowtide::detail {

/// Used around every step of one job; other jobs may run between the groups of a wave. Not thread-safe.
class StepRecorder {
 public:
  /// The device is idle. `alloc_s`: what the host loses when the allocator asks the driver; left out of the
  /// steps' times, since it comes once and not in every job.
  StepRecorder(const device::Device& device, std::size_t steps, double alloc_s);

  /// The job's turn begins or ends; what else is on the device is not its own.
  void enter();
  void leave();
  void before(std::size_t step);
  void after(std::size_t step);
  /// The job holds its inputs now, and has run no step.
  void inputs_are_there();

  /// Highest use of the device during the turns so far: the recorder restarts the device's window.
  Bytes window_peak() const { return window_peak_; }
  /// The measurements, or nothing when the job did not pass all steps. The device has been synchronised.
  /// Times of steps that wait for the link are as `described`.
  std::optional<LearnedShape> finish(const JobProfile& described);

 private:
  struct Marks {
    c10::Event begin;
    c10::Event end;
    double host_begin = 0;
    double host_end = 0;
    double driver_s = 0;
  };

  c10::Event mark() const;
  void look_at_window();

  device::Device device_;
  double alloc_s_;
  std::vector<Marks> marks_;
  plan::JobMemory memory_;
  std::vector<bool> done_;
  std::optional<c10::Event> origin_;  // recorded while the device was idle...
  double origin_host_ = 0;            // ...at this time of the host
  Bytes others_ = 0;                  // on the device, not of this job
  Bytes own_ = 0;                     // of the job, when its turn ended
  Bytes peak_ = 0;
  Bytes window_peak_ = 0;
  std::uint64_t driver_allocs_ = 0;
};

}  // namespace lowtide::detail
