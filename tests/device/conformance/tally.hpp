// What was kept, and what was skipped and why. A skipped promise never counts as passed.
#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace lowtide::conformance {

class Tally {
 public:
  void passed() { ++passed_; }
  void failed() { ++failed_; }
  /// `reason` names the device: "cuda: no driver".
  void skipped(const std::string& reason) { ++skipped_[reason]; }

  /// "12 passed, 3 skipped (3 cuda: no driver)"; failures only where there are any.
  std::string summary() const;

 private:
  std::size_t passed_ = 0;
  std::size_t failed_ = 0;
  std::map<std::string, std::size_t> skipped_;  // by reason
};

/// Of promises on devices. Printed at the end of the run, with that of the faulty devices.
Tally& promise_tally();
/// Of faulty devices: passed means that the fault was seen.
Tally& fault_tally();

}  // namespace lowtide::conformance
