#include "archive/json_tree.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "graph/quote.hpp"
#include "lowtide/error.hpp"

namespace lowtide::archive {

using graph::in_quotes;

namespace {
constexpr std::size_t kDeepest = 200;
}  // namespace

/// Receives the events of nlohmann's parser, which itself does not recurse.
class JsonTreeBuilder {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;

  explicit JsonTreeBuilder(JsonTree& tree) : tree_(tree) {}

  bool null() { return add(Kind::null) != nullptr; }
  bool boolean(bool value) {
    add(Kind::boolean)->integer = value ? 1 : 0;
    return true;
  }
  bool number_integer(number_integer_t value) {
    add(Kind::integer)->integer = value;
    return true;
  }
  bool number_unsigned(number_unsigned_t value) {
    if (value <= static_cast<number_unsigned_t>(INT64_MAX))
      return number_integer(static_cast<number_integer_t>(value));
    return number_float(static_cast<number_float_t>(value), {});
  }
  bool number_float(number_float_t value, const std::string&) {
    add(Kind::real)->real = value;
    return true;
  }
  bool string(std::string& value) {
    add(Kind::string)->text = keep(value);
    return true;
  }
  bool binary(nlohmann::json::binary_t&) { return false; }  // occurs in no JSON text
  bool key(std::string& value) {
    key_ = keep(value);
    return true;
  }
  bool start_object(std::size_t) { return open(Kind::object); }
  bool start_array(std::size_t) { return open(Kind::array); }
  bool end_object() {
    tree_.check_keys(open_.back().index);
    return close();
  }
  bool end_array() { return close(); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& error) {
    std::string why = error.what();
    why.erase(0, why.find("] ") == std::string::npos ? 0 : why.find("] ") + 2);
    why = in_quotes(why);
    throw ArchiveError("record " + in_quotes(tree_.name_) + " is damaged: no JSON at byte " +
                       std::to_string(position) + " (" + why.substr(1, why.size() - 2) + ")");
  }

 private:
  using Kind = JsonTree::Kind;
  struct Open {
    std::uint32_t index;
    std::uint32_t last_child;
  };

  std::string_view keep(const std::string& text) {
    if (text.empty()) return {};
    auto* copy = static_cast<char*>(tree_.texts_.allocate(text.size(), 1));
    std::memcpy(copy, text.data(), text.size());
    return {copy, text.size()};
  }

  JsonTree::Entry* add(Kind kind) {
    if (tree_.entries_.size() >= JsonTree::kNone)
      throw ArchiveError("record " + in_quotes(tree_.name_) + " is too large");
    const auto index = static_cast<std::uint32_t>(tree_.entries_.size());
    JsonTree::Entry& entry = tree_.entries_.emplace_back();
    entry.kind = kind;
    if (open_.empty()) return &entry;
    Open& parent = open_.back();
    entry.parent = parent.index;
    JsonTree::Entry& container = tree_.entries_[parent.index];
    if (container.kind == Kind::object) entry.key = key_;
    (container.count++ == 0 ? container.first : tree_.entries_[parent.last_child].next) = index;
    parent.last_child = index;
    return &entry;
  }

  bool open(Kind kind) {
    if (open_.size() == kDeepest)
      throw ArchiveError("record " + in_quotes(tree_.name_) + " is nested too deeply");
    add(kind);
    open_.push_back({static_cast<std::uint32_t>(tree_.entries_.size() - 1), JsonTree::kNone});
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  JsonTree& tree_;
  std::vector<Open> open_;
  std::string_view key_;
};

JsonTree::JsonTree(std::string_view text, std::string name) : name_(std::move(name)) {
  entries_.reserve(text.size() / 12 + 16);
  JsonTreeBuilder builder(*this);
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
}

void JsonTree::check_keys(std::uint32_t object) const {
  static constexpr std::uint32_t kFew = 8;  // most objects: compared in pairs, without a list
  const auto twice = [&](std::string_view key) {
    Json(*this, object).fail("key " + in_quotes(key) + " occurs twice");
  };
  if (entries_[object].count <= kFew) {
    for (std::uint32_t i = entries_[object].first; i != kNone; i = entries_[i].next) {
      for (std::uint32_t j = entries_[i].next; j != kNone; j = entries_[j].next) {
        if (entries_[i].key == entries_[j].key) twice(entries_[i].key);
      }
    }
    return;
  }
  std::vector<std::string_view> keys;
  keys.reserve(entries_[object].count);
  for (std::uint32_t i = entries_[object].first; i != kNone; i = entries_[i].next)
    keys.push_back(entries_[i].key);
  std::sort(keys.begin(), keys.end());
  const auto pair = std::adjacent_find(keys.begin(), keys.end());
  if (pair != keys.end()) twice(*pair);
}

const char* JsonTree::describe(Kind kind) {
  switch (kind) {
    case Kind::null:
      return "null";
    case Kind::boolean:
      return "a boolean";
    case Kind::integer:
      return "an integer";
    case Kind::real:
      return "a number";
    case Kind::string:
      return "a string";
    case Kind::array:
      return "an array";
    case Kind::object:
      return "an object";
  }
  return "something";
}

std::string JsonTree::path(std::uint32_t index) const {
  std::vector<std::string> steps;
  for (; entries_[index].parent != kNone; index = entries_[index].parent) {
    const Entry& parent = entries_[entries_[index].parent];
    if (parent.kind == Kind::object) {
      steps.push_back("." + std::string(entries_[index].key));
      continue;
    }
    std::size_t position = 0;
    for (std::uint32_t i = parent.first; i != index; i = entries_[i].next) ++position;
    steps.push_back("[" + std::to_string(position) + "]");
  }
  std::string text;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) text += *step;
  return text.empty() ? "the top" : text.substr(text.front() == '.' ? 1 : 0);
}

void Json::fail(const std::string& what) const {
  throw ArchiveError("record " + in_quotes(tree_->name_) + " at " + in_quotes(tree_->path(index_)) + ": " +
                     what);
}

void Json::expected(const char* what) const {
  fail(std::string("expected ") + what + ", found " + JsonTree::describe(tree_->entries_[index_].kind));
}

Json Json::at(std::string_view key) const {
  for (const Json member : members()) {
    if (member.key() == key) return member;
  }
  fail("key " + in_quotes(key) + " is missing");
}

std::optional<Json> Json::find(std::string_view key) const {
  for (const Json member : members()) {
    if (member.key() == key) return member.is_null() ? std::nullopt : std::optional(member);
  }
  return std::nullopt;
}

Json Json::only_member() const {
  const Range range = members();
  if (size() != 1) fail("expected an object with one key, found " + std::to_string(size()));
  return *range.begin();
}

bool Json::is_null() const {
  return tree_->entries_[index_].kind == JsonTree::Kind::null;
}
bool Json::is_object() const {
  return tree_->entries_[index_].kind == JsonTree::Kind::object;
}
bool Json::is_array() const {
  return tree_->entries_[index_].kind == JsonTree::Kind::array;
}
bool Json::is_string() const {
  return tree_->entries_[index_].kind == JsonTree::Kind::string;
}

bool Json::is_integer() const {
  return tree_->entries_[index_].kind == JsonTree::Kind::integer;
}

std::int64_t Json::integer() const {
  if (tree_->entries_[index_].kind != JsonTree::Kind::integer) expected("a 64-bit integer");
  return tree_->entries_[index_].integer;
}

double Json::number() const {
  const JsonTree::Entry& entry = tree_->entries_[index_];
  if (entry.kind == JsonTree::Kind::integer) return static_cast<double>(entry.integer);
  if (entry.kind == JsonTree::Kind::real) return entry.real;
  if (entry.kind == JsonTree::Kind::string) {
    if (entry.text == "Infinity") return std::numeric_limits<double>::infinity();
    if (entry.text == "-Infinity") return -std::numeric_limits<double>::infinity();
    if (entry.text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  }
  expected("a number");
}

bool Json::boolean() const {
  if (tree_->entries_[index_].kind != JsonTree::Kind::boolean) expected("a boolean");
  return tree_->entries_[index_].integer != 0;
}

std::string_view Json::string() const {
  if (!is_string()) expected("a string");
  return tree_->entries_[index_].text;
}

std::string_view Json::key() const {
  return tree_->entries_[index_].key;
}
std::size_t Json::size() const {
  return tree_->entries_[index_].count;
}

Json::Range Json::children() const {
  return {Iterator(*tree_, tree_->entries_[index_].first), Iterator(*tree_, JsonTree::kNone)};
}

Json::Range Json::elements() const {
  if (!is_array()) expected("an array");
  return children();
}

Json::Range Json::members() const {
  if (!is_object()) expected("an object");
  return children();
}

Json::Iterator& Json::Iterator::operator++() {
  index_ = tree_->entries_[index_].next;
  return *this;
}

}  // namespace lowtide::archive
