// A job's hold on the device.
#pragma once

#include "device/device_extras.hpp"

namespace lowtide::device {

/// The device belongs to this thread's job while it lives: DeviceExtras::enter_job() to leave_job(). Does
/// nothing where `extras` is null, since the cpu knows no jobs.
class JobScope {
 public:
  explicit JobScope(DeviceExtras* extras) : extras_(extras) {
    if (extras_ != nullptr) extras_->enter_job();
  }
  ~JobScope() {
    if (extras_ != nullptr) extras_->leave_job();
  }
  JobScope(const JobScope&) = delete;
  JobScope& operator=(const JobScope&) = delete;

 private:
  DeviceExtras* const extras_;
};

}  // namespace lowtide::device
