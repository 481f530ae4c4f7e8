// Recorded runs on disk, so that the first job of a later process knows what it will ask for. One small file
// a run, beside the learned shapes; all of them may be deleted at any time.
#pragma once

#include <optional>
#include <string>

#include "memory/activation_arena.hpp"

namespace lowtide::detail {

/// Not thread-safe; several processes may use one folder. Failures are never errors: what cannot be read was
/// not known, what cannot be written is not remembered.
class PatternStore {
 public:
  /// Files that are kept; the one written longest ago goes first.
  static constexpr std::size_t kMostFiles = 512;

  /// An empty folder: nothing is found, nothing is written.
  explicit PatternStore(std::string folder) : folder_(std::move(folder)) {}

  /// The run of exactly this key. Nothing where the file is damaged or belongs to another key.
  std::optional<memory::RequestTrace> find(const std::string& key) const;
  void put(const std::string& key, const memory::RequestTrace& trace) const;
  void drop(const std::string& key) const;

 private:
  std::string path(const std::string& key) const;
  void make_room() const;

  std::string folder_;
};

}  // namespace lowtide::detail
