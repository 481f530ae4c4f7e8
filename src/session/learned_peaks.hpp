// Peaks measured in earlier runs, kept in one small JSON file that may be deleted at any time.
//
// An entry says how much a job of one model, shape, card and thread count really took beside the weights. It
// replaces the sum of bounds, and so lets smaller caps work.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "lowtide/bytes.hpp"

namespace lowtide::detail {

/// Not thread-safe.
class LearnedPeaks {
 public:
  /// Reads the file; a missing or damaged one is an empty one. An empty path: nothing is remembered beyond
  /// this object.
  explicit LearnedPeaks(std::string path);

  static std::string key(const std::string& fingerprint, const std::string& shapes, const std::string& card,
                         int threads);

  std::optional<Bytes> find(const std::string& key) const;
  /// Keeps the largest value seen for a key.
  void record(const std::string& key, Bytes peak);
  /// Writes what was recorded, together with what other processes wrote meanwhile. Failures are logged, not
  /// thrown.
  void save();

 private:
  std::string path_;
  std::map<std::string, Bytes> peaks_;
  bool changed_ = false;
};

}  // namespace lowtide::detail
