// Runs when the library is loaded: tells PyTorch about device "sim", from C++ and from Python.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceType.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>

#include "device/sim/allocators.hpp"
#include "device/sim/card.hpp"
#include "device/sim/kernels.hpp"
#include "device/sim/sim_entry.hpp"
#include "device/sim/streams.hpp"
#include "lowtide/error.hpp"

namespace lowtide::device::sim {
namespace {

class SimHooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }

  bool isPinnedPtr(const void* data) const override { return sim_card().pinned().contains(data, 0); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator(); }
  c10::Device getDeviceFromPtr(void* data) const override {
    return sim_card().memory().owns(data) ? sim_device() : c10::Device(c10::kCPU);
  }
  /// The card runs the CPU's kernels, random ones too.
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
  at::Generator getNewGenerator(c10::DeviceIndex) const override {
    return at::make_generator<at::CPUGeneratorImpl>();
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const override {
    c10::StorageImpl& impl = *storage.unsafeGetStorageImpl();
    c10::DataPtr data = card_allocator().allocate(bytes);
    if (const std::size_t kept = std::min(bytes, impl.nbytes()); kept != 0)
      std::memcpy(data.get(), impl.data(), kept);
    impl.set_data_ptr_noswap(std::move(data));
    impl.set_nbytes(bytes);
  }
};

/// Loading a library must not throw: a failure is kept and told to whoever opens the card.
std::string register_backend() {
  try {
    c10::register_privateuse1_backend("sim");
    register_device_guard();
    at::RegisterPrivateUse1HooksInterface(new SimHooks);
    c10::SetAllocator(kSim, &card_allocator());
    constexpr std::uint8_t kOverDefault = 100;
    c10::SetCPUAllocator(&routing_cpu_allocator(), kOverDefault);
    register_kernels();
    return {};
  } catch (const std::exception& error) {
    return std::string("simulated card: PyTorch refused device 'sim': ") + error.what() +
           "; another PrivateUse1 backend is probably loaded";
  }
}

const std::string& registration_failure() {
  static const auto* const failure = new std::string(register_backend());
  return *failure;
}

[[maybe_unused]] const bool registered_on_load = registration_failure().empty();

void open_card(const std::string& json) {
  if (!registration_failure().empty()) throw DeviceError(registration_failure());
  sim_card().open(parse_card(json));
  at::globalContext().lazyInitDevice(kSim);  // before that PyTorch asks no device which memory is pinned
}

}  // namespace

TORCH_LIBRARY(lowtide_sim, library) {
  library.def("open(str card_json) -> ()", [](const std::string& json) { open_card(json); });
  library.def("reset() -> ()", [] { sim_card().reset_counters(); });
  library.def("stats() -> str", [] { return stats_json(sim_card().counters(), sim_card().events()); });
  // For tests: what the card does wrong from now on (see Faults). "{}" for nothing.
  library.def("inject(str faults_json) -> ()",
              [](const std::string& json) { sim_card().inject(parse_faults(json)); });
}

}  // namespace lowtide::device::sim

extern "C" lowtide::device::DeviceExtras* lowtide_sim_open(const char* card_json, char* error,
                                                           std::size_t error_size) {
  using namespace lowtide::device::sim;
  try {
    open_card(card_json);
    return &sim_card();
  } catch (const std::exception& failure) {
    if (error != nullptr && error_size != 0) {
      const std::size_t length = std::min(std::strlen(failure.what()), error_size - 1);
      std::memcpy(error, failure.what(), length);
      error[length] = '\0';
    }
    return nullptr;
  }
}
