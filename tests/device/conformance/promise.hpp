// A promise of a device, the devices it is checked on, and the faulty devices that show that the check works.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/conformance/checks.hpp"
#include "device/conformance/device_under_test.hpp"

namespace lowtide::conformance {

/// What a device must have for a promise to make sense. The cpu has none of it.
enum class Needs { nothing, accounting, streams, page_locking, memory_of_its_own };

struct Promise {
  const char* sentence;
  Needs needs;
  void (*check)(DeviceUnderTest&, Checks&);
};

/// Runs the promise's checks in inference mode, from a settled device to a settled device.
Checks check(const Promise& promise, DeviceUnderTest& device);

/// A device that gets one thing wrong, and the checks of the promise that have to notice.
struct Fault {
  const Promise* promise;
  std::unique_ptr<DeviceUnderTest> (*make)(device::Device);
  std::vector<const char*> checks;
};

template <class Faulty>
std::unique_ptr<DeviceUnderTest> make_faulty(device::Device device) {
  return std::make_unique<Faulty>(device);
}

/// All of the program, in no order.
std::vector<const Promise*>& all_promises();
std::vector<Fault>& all_faults();
bool add_promise(const Promise& promise);
bool add_fault(const Fault& fault);

/// Checks the promise on cpu, cuda and sim, and tallies what was kept and what skipped.
void keep_on_every_device(const Promise& promise);
/// Checks that the fault is noticed: on the simulated card, and on the cpu where the promise makes sense
/// there.
void see_to_fail(const Fault& fault);

/// An open device, or why there is none.
struct Opened {
  std::optional<device::Device> device;
  std::string reason;
};

/// Opens the device unless LOWTIDE_CONFORMANCE_DEVICES ("cuda,sim") leaves it out.
Opened open_selected(device::DeviceKind kind);
/// Why the promise makes no sense on the device; empty where it does.
std::string not_applicable(const Promise& promise, const device::Device& device);

/// Reads LOWTIDE_CONFORMANCE_DEVICES. Throws std::invalid_argument for words that name no device, since a
/// misspelt device would be skipped for ever.
bool is_selected(const char* list, const std::string& device);

}  // namespace lowtide::conformance

/// Checks a namespace-scope `constexpr Promise` on every device.
#define LOWTIDE_PROMISE(promise)                                                                    \
  [[maybe_unused]] static const bool promise##Added = ::lowtide::conformance::add_promise(promise); \
  TEST_CASE((promise).sentence) {                                                                   \
    ::lowtide::conformance::keep_on_every_device(promise);                                          \
  }                                                                                                 \
  static_assert(true, "")

/// Shows that the named checks of the promise are broken by the device class `Faulty`.
#define LOWTIDE_SEEN_TO_FAIL(what, Faulty, promise, ...)                                                     \
  static const ::lowtide::conformance::Fault k##Faulty##Fault{                                               \
      &promise, &::lowtide::conformance::make_faulty<Faulty>, {__VA_ARGS__}};                                \
  [[maybe_unused]] static const bool k##Faulty##Added = ::lowtide::conformance::add_fault(k##Faulty##Fault); \
  TEST_CASE("a device that " what " is seen to fail") {                                                      \
    ::lowtide::conformance::see_to_fail(k##Faulty##Fault);                                                   \
  }                                                                                                          \
  static_assert(true, "")
