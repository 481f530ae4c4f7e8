// A parsed JSON text as a compact, read-only tree whose every access is checked. Made for hostile files:
// nesting is limited, a key that occurs twice is an error, and each error names the record and the path
// inside it.
#pragma once

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lowtide::archive {

class JsonTree;

/// One value of a tree. Cheap to copy; valid as long as its tree. All readers throw ArchiveError when the
/// value is of another type.
class Json {
 public:
  /// The member of that key. Throws when there is none.
  Json at(std::string_view key) const;
  /// The member of that key; nothing when there is none or it is null.
  std::optional<Json> find(std::string_view key) const;
  /// The single member of a union such as {"as_int": 3}; its key() is the tag.
  Json only_member() const;

  bool is_null() const;
  bool is_object() const;
  bool is_array() const;
  bool is_string() const;
  bool is_integer() const;
  std::int64_t integer() const;
  /// An integer or real number, or one of "Infinity", "-Infinity" and "NaN", which export writes as strings.
  double number() const;
  bool boolean() const;
  std::string_view string() const;
  /// Of an object's member; empty for others.
  std::string_view key() const;
  /// Number of elements or members.
  std::size_t size() const;

  class Iterator {
   public:
    Json operator*() const { return {*tree_, index_}; }
    Iterator& operator++();
    bool operator==(const Iterator& other) const { return index_ == other.index_; }

   private:
    friend class Json;
    Iterator(const JsonTree& tree, std::uint32_t index) : tree_(&tree), index_(index) {}
    const JsonTree* tree_;
    std::uint32_t index_;
  };
  struct Range {
    Iterator first, last;
    Iterator begin() const { return first; }
    Iterator end() const { return last; }
  };
  /// Of an array.
  Range elements() const;
  /// Of an object.
  Range members() const;

  /// Throws ArchiveError: "record 'R' at a.b[2]: WHAT".
  [[noreturn]] void fail(const std::string& what) const;

 private:
  friend class JsonTree;
  Json(const JsonTree& tree, std::uint32_t index) : tree_(&tree), index_(index) {}
  Range children() const;
  [[noreturn]] void expected(const char* what) const;

  const JsonTree* tree_;
  std::uint32_t index_;
};

class JsonTree {
 public:
  /// `name` is the record, for messages. Throws ArchiveError when `text` is no JSON or nested deeper than 200
  /// levels.
  JsonTree(std::string_view text, std::string name);
  JsonTree(const JsonTree&) = delete;
  JsonTree& operator=(const JsonTree&) = delete;

  Json root() const { return {*this, 0}; }

 private:
  friend class Json;
  friend class JsonTreeBuilder;

  enum class Kind : std::uint8_t { null, boolean, integer, real, string, array, object };
  static constexpr std::uint32_t kNone = UINT32_MAX;

  struct Entry {
    Kind kind = Kind::null;
    std::uint32_t parent = kNone;
    std::uint32_t next = kNone;   // sibling
    std::uint32_t first = kNone;  // child
    std::uint32_t count = 0;      // of children
    std::string_view key;
    std::string_view text;
    union {
      std::int64_t integer = 0;
      double real;
    };
  };

  static const char* describe(Kind kind);
  std::string path(std::uint32_t index) const;
  void check_keys(std::uint32_t object) const;

  std::string name_;
  std::vector<Entry> entries_;
  std::pmr::monotonic_buffer_resource texts_;
};

}  // namespace lowtide::archive
