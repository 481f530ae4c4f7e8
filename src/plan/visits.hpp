// When units are on the device: from their first to their last use, or in several visits with copies in
// between.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/residency_problem.hpp"

namespace lowtide::plan {

/// A unit on the device from `first` to `last` use. A unit that is used again much later has several visits.
struct Visit {
  UnitId unit = 0;
  StepId first = 0;
  StepId last = 0;
};

/// Which units stay, and before which uses the others leave. One byte a flag.
struct UnitModes {
  std::vector<std::uint8_t> resident;  // per unit
  std::vector<std::uint8_t> leaves;    // per pause of VisitTable: the unit is copied anew after it
};

/// All pauses between two uses of a unit that are long enough to leave in. Packed units never leave, and a
/// unit that is used at two successive steps gains nothing by leaving in between.
class VisitTable {
 public:
  explicit VisitTable(const ResidencyProblem& problem);

  std::size_t pauses() const { return pause_steps_.size(); }
  /// Pauses of a unit: [pause_begin(unit), pause_begin(unit + 1)).
  std::uint32_t pause_begin(UnitId unit) const { return pause_begin_[unit]; }
  bool can_leave(UnitId unit) const { return pause_begin_[unit] < pause_begin_[unit + 1]; }
  StepId pause_steps(std::uint32_t pause) const { return pause_steps_[pause]; }
  /// Lengths worth trying as "leave in longer pauses than this": never, always, and where the pauses of the
  /// problem fall apart into short and long ones (in a wave, say, those inside a job and those between jobs).
  std::span<const StepId> thresholds() const { return thresholds_; }

  /// The visits of all units that are not resident, by first use, large ones first; into `visits`, whose
  /// memory is reused.
  void list(const UnitModes& modes, std::vector<Visit>& visits);

 private:
  static constexpr std::uint32_t kNoPause = UINT32_MAX;
  struct Stretch {  // of uses without a pause
    UnitId unit;
    StepId first;
    StepId last;
    std::uint32_t pause;  // in front of it
  };

  std::vector<Stretch> stretches_;  // by first use
  std::vector<std::uint32_t> pause_begin_;
  std::vector<StepId> pause_steps_;
  std::vector<StepId> thresholds_;
  std::vector<std::uint32_t> open_;  // scratch, per unit: its last visit in the list
};

}  // namespace lowtide::plan
