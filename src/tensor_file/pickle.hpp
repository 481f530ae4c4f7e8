// Python pickles read as plain data: a tree of values in which calls are recorded, never made. Unlike an
// unpickler that builds objects, it has nothing to execute; what a call means is decided by the reader of the
// tree.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace lowtide::tensor_file::pickle {

/// Text that is no pickle, or one with opcodes outside the data-only subset (that of
/// torch.load(weights_only=True)).
class PickleError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum class Kind : std::uint8_t {
  none,
  boolean,
  integer,
  real,        // its value is not kept
  text,        // str or bytes
  list,        // items: the elements
  tuple,       // items: the elements
  dict,        // items: key, value, key, value...
  global,      // text: "module.name"
  persistent,  // items: the one id; refers to something outside the pickle
  call,        // items: callable, tuple of arguments, then key, value... set on the result
};

/// One value. Values may share children and even contain themselves: walk with a depth limit.
struct Value {
  Kind kind = Kind::none;
  bool has_state = false;    // a __setstate__ was recorded on it
  std::int64_t integer = 0;  // also 0 or 1 of a boolean
  std::string text;
  std::vector<const Value*> items;
};

/// Owns the values of one pickle.
class Pickle {
 public:
  /// Reads protocols 2 to 5. Throws PickleError. Work and memory are bounded by a multiple of the text's
  /// length.
  explicit Pickle(std::string_view bytes);

  const Value& root() const { return *root_; }

 private:
  friend class PickleMachine;
  std::deque<Value> values_;
  const Value* root_ = nullptr;
};

}  // namespace lowtide::tensor_file::pickle
