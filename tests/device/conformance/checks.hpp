// What a promise looked at on a device, and what it found broken.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

namespace lowtide::conformance {

/// One check that did not hold.
struct Violation {
  std::string check;   // the sentence of the check
  std::string detail;  // which case of it, or what was thrown; may be empty
};

using Violations = std::vector<Violation>;

/// Collects the checks of one promise. A check never throws: an exception inside it breaks it.
class Checks {
 public:
  using Condition = std::function<bool()>;

  /// Makes a check. `sentence` says what holds; `detail` which case of several this is.
  void that(const std::string& sentence, const Condition& holds) { that(sentence, {}, holds); }
  void that(const std::string& sentence, const std::string& detail, const Condition& holds);

  const Violations& violations() const { return violations_; }
  /// Sentences of all checks made, kept or not.
  const std::set<std::string>& made() const { return made_; }
  bool is_broken(const std::string& sentence) const;

 private:
  Violations violations_;
  std::set<std::string> made_;
};

/// Does the call throw a `Wanted`? Anything else it throws is passed on, and shows up in the violation.
template <class Wanted>
bool throws(const std::function<void()>& call) {
  try {
    call();
  } catch (const Wanted&) {
    return true;
  }
  return false;
}

/// For people: one line a violation, and not thousands of them.
std::string to_text(const Violations& violations);

}  // namespace lowtide::conformance
