// The memory patterns of a session: one for each run it knows, found by an exact key.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>

#include "memory/activation_arena.hpp"

namespace lowtide::detail {

/// Lays out what a recorded run asked for.
std::shared_ptr<const memory::MemoryPattern> make_pattern(const memory::RequestTrace& trace);

/// Bounded: the pattern that was not asked for longest goes first. Not thread-safe.
class PatternCache {
 public:
  using Hash = std::function<std::size_t(const std::string&)>;
  using Pattern = std::shared_ptr<const memory::MemoryPattern>;

  static constexpr std::size_t kMaxBytes = 64 << 20;

  /// `max_bytes` of host memory for keys and patterns together; the newest pattern stays, whatever it takes.
  explicit PatternCache(std::size_t max_bytes = kMaxBytes, Hash hash = std::hash<std::string>());

  /// Keys are compared whole: equal hashes of different keys do no harm. Null where there is none.
  Pattern find(const std::string& key);
  void put(const std::string& key, Pattern pattern);
  void drop(const std::string& key);

  std::size_t size() const { return by_key_.size(); }
  std::size_t host_bytes() const { return bytes_; }

 private:
  struct Entry {
    std::string key;
    Pattern pattern;
    std::size_t bytes = 0;
  };
  using Entries = std::list<Entry>;

  void erase(Entries::iterator entry);

  std::size_t max_bytes_;
  std::size_t bytes_ = 0;
  Entries entries_;  // the one asked for last is first
  std::unordered_map<std::string, Entries::iterator, Hash> by_key_;
};

}  // namespace lowtide::detail
