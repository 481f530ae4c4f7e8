#include "device/conformance/promise.hpp"

#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <doctest/doctest.h>

#include <array>
#include <cstdlib>
#include <sstream>
#include <stdexcept>

#include "device/conformance/tally.hpp"
#include "device/job_scope.hpp"
#include "lowtide/error.hpp"

namespace lowtide::conformance {
namespace {

using device::Device;
using device::DeviceKind;

constexpr std::array kKinds{DeviceKind::cpu, DeviceKind::cuda, DeviceKind::sim};

/// Large enough for every promise; a context that is no multiple of anything shows who forgets it.
constexpr const char* kSimulatedCard =
    R"({"name":"conformance","total_bytes":536870912,"context_bytes":5000003})";

}  // namespace

std::vector<const Promise*>& all_promises() {
  static std::vector<const Promise*> promises;
  return promises;
}

std::vector<Fault>& all_faults() {
  static std::vector<Fault> faults;
  return faults;
}

bool add_promise(const Promise& promise) {
  all_promises().push_back(&promise);
  return true;
}

bool add_fault(const Fault& fault) {
  all_faults().push_back(fault);
  return true;
}

bool is_selected(const char* list, const std::string& device) {
  if (list == nullptr || *list == '\0') return true;
  bool selected = false;
  std::istringstream words(list);
  for (std::string word; std::getline(words, word, ',');) {
    bool known = false;
    for (const DeviceKind kind : kKinds) known = known || word == device::kind_name(kind);
    if (!known)
      throw std::invalid_argument("LOWTIDE_CONFORMANCE_DEVICES: '" + word + "' is none of cpu, cuda and sim");
    selected = selected || word == device;
  }
  return selected;
}

Opened open_selected(DeviceKind kind) {
  const std::string name = device::kind_name(kind);
  if (!is_selected(std::getenv("LOWTIDE_CONFORMANCE_DEVICES"), name))
    return {std::nullopt, name + ": not asked for"};
  try {
    device::DeviceSpec spec{.kind = kind};
    if (kind == DeviceKind::sim) spec.card_json = kSimulatedCard;
    return {Device::open(spec), {}};
  } catch (const DeviceError& error) {
    return {std::nullopt, name + ": " + error.what()};
  }
}

std::string not_applicable(const Promise& promise, const Device& device) {
  if (device.extras() != nullptr) return {};
  const std::string name = std::string(device::kind_name(device.kind())) + ": ";
  switch (promise.needs) {
    case Needs::nothing:
      return {};
    case Needs::accounting:
      return name + "memory is neither capped nor counted";
    case Needs::streams:
      return name + "no streams, every call is finished when it returns";
    case Needs::page_locking:
      return name + "nothing has to be page-locked";
    case Needs::memory_of_its_own:
      return name + "its memory is the host's";
  }
  return {};
}

namespace {

/// Runs a trivial operator truly.
void launch(const DeviceUnderTest& device) {
  at::zeros({4}, at::TensorOptions().device(device.torch()));
}

}  // namespace

Checks check(const Promise& promise, DeviceUnderTest& device) {
  const c10::InferenceMode mode;
  Checks checks;
  const auto broken = [&](const char* sentence, const std::string& detail) {
    checks.that(sentence, detail, [] { return false; });
  };
  device.settle();
  {
    const device::JobScope job(device.extras());  // only within a job its cap holds and its memory is counted
    try {
      promise.check(device, checks);
    } catch (const std::exception& error) {
      broken("the checks of the promise can be carried out", error.what());
    }
    device.finish();
    if (device.live_bytes() != 0)
      broken("nothing stays allocated", std::to_string(device.live_bytes()) + " bytes");
    try {
      launch(device);
    } catch (const std::exception& error) {
      broken("nothing is left that hits a later launch", error.what());
    }
  }
  device.settle();
  return checks;
}

void keep_on_every_device(const Promise& promise) {
  for (const DeviceKind kind : kKinds) {
    const Opened opened = open_selected(kind);
    const std::string reason = opened.device ? not_applicable(promise, *opened.device) : opened.reason;
    if (!reason.empty()) {
      promise_tally().skipped(reason);
      continue;
    }
    DeviceUnderTest device(*opened.device);
    const Checks checks = check(promise, device);
    const bool kept = checks.violations().empty() && !checks.made().empty();
    kept ? promise_tally().passed() : promise_tally().failed();
    CHECK_MESSAGE(kept, "on " << device::kind_name(kind) << "\n" << to_text(checks.violations()));
  }
}

void see_to_fail(const Fault& fault) {
  for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::sim}) {
    const Opened opened = open_selected(kind);
    const std::string reason = opened.device ? not_applicable(*fault.promise, *opened.device) : opened.reason;
    if (!reason.empty()) {
      fault_tally().skipped(reason);
      continue;
    }
    const Checks checks = check(*fault.promise, *fault.make(*opened.device));
    bool seen = true;
    for (const char* sentence : fault.checks) {
      seen = seen && checks.is_broken(sentence);
      CHECK_MESSAGE(checks.is_broken(sentence), "on " << device::kind_name(kind)
                                                      << " this held: " << std::string(sentence) << "\n"
                                                      << to_text(checks.violations()));
    }
    seen ? fault_tally().passed() : fault_tally().failed();
  }
}

}  // namespace lowtide::conformance
