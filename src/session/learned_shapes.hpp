// What earlier runs measured, kept in one small JSON file that may be deleted at any time.
//
// An entry tells what a job of one model, shape, card and thread count really took, step by step: memory
// beside the weights, and time. It replaces bounds and the card's description, and so lets smaller caps work
// and predicts better. Only what differs from those is written.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plan/wave_groups.hpp"

namespace lowtide::detail {

/// What a job takes, as bounds and descriptions say or as measured.
struct JobProfile {
  plan::JobMemory memory;
  std::vector<plan::StepCost> costs;  // host_s and kernel_s are measured
};

struct LearnedShape {
  Bytes peak = 0;  // of the whole job beside the weights
  JobProfile profile;
};

/// Not thread-safe.
class LearnedShapes {
 public:
  /// Reads the file; a missing or damaged one is an empty one. An empty path: nothing is remembered beyond
  /// this object.
  explicit LearnedShapes(std::string path);

  /// Short for a description: another one has another.
  static std::string basis(const JobProfile& described);
  static std::string key(const std::string& fingerprint, const std::string& shapes, const std::string& card,
                         int threads);

  /// `described` is the profile before anything was measured, which entries are written against; one of
  /// another description is as good as none.
  std::optional<LearnedShape> find(const std::string& key, const JobProfile& described) const;
  /// Keeps the largest peak seen for a key; nothing else changes.
  void record_peak(const std::string& key, Bytes peak);
  /// A whole job was measured. Of several measurements the larger bytes and the shorter times count.
  void record(const std::string& key, const JobProfile& described, const LearnedShape& measured);
  /// Writes what was recorded, together with what other processes wrote meanwhile. Failures are logged, not
  /// thrown.
  void save();

 private:
  /// Values that differ from the description: index, value, index, value...
  using Differences = std::vector<std::uint64_t>;
  struct Entry {
    Bytes peak = 0;
    std::string basis;  // of the description
    Differences peaks, after, host_ns, kernel_ns;
  };
  friend struct EntryJson;

  static std::map<std::string, Entry> read(const std::string& path);

  std::string path_;
  std::map<std::string, Entry> entries_;
  bool changed_ = false;
};

}  // namespace lowtide::detail
