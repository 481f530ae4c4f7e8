#include <dlfcn.h>

#include <array>
#include <filesystem>

#include "device/device.hpp"
#include "device/sim/sim_entry.hpp"
#include "lowtide/error.hpp"

namespace lowtide::device {
namespace {

/// The folder of the library or program this code is in.
std::filesystem::path own_folder() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0 || info.dli_fname == nullptr)
    return {};
  std::error_code ignored;
  return std::filesystem::weakly_canonical(info.dli_fname, ignored).parent_path();
}

DeviceExtras* open_sim(const std::string& card_json) {
  const std::filesystem::path here = own_folder();
  void* library = nullptr;
  std::string reason;
  for (const auto& folder : {here, here / ".." / "lib"}) {
    const auto path = folder / "liblowtide_sim.so";
    if (!std::filesystem::exists(path)) continue;
    library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) reason = ::dlerror();
    break;
  }
  if (library == nullptr)
    throw DeviceError("cannot load the simulated card (liblowtide_sim.so" +
                      (reason.empty() ? "" : ": " + reason) + "): run tools/build");
  const auto open = reinterpret_cast<decltype(&lowtide_sim_open)>(::dlsym(library, "lowtide_sim_open"));
  if (open == nullptr) throw DeviceError("liblowtide_sim.so is of another version: run tools/build");
  std::array<char, 512> message{};
  DeviceExtras* extras = open(card_json.c_str(), message.data(), message.size());
  if (extras == nullptr) throw DeviceError("cannot open the simulated card: " + std::string(message.data()));
  return extras;
}

}  // namespace

const char* Device::kind_name() const {
  switch (kind_) {
    case DeviceKind::cpu:
      return "cpu";
    case DeviceKind::cuda:
      return "cuda";
    case DeviceKind::sim:
      return "sim";
  }
  return "?";
}

bool cuda_available() {
  return false;
}

Device Device::open(const DeviceSpec& spec) {
  switch (spec.kind) {
    case DeviceKind::cpu:
      return Device(spec.kind, c10::Device(c10::kCPU), nullptr);
    case DeviceKind::sim:
      return Device(spec.kind, c10::Device(c10::DeviceType::PrivateUse1, 0), open_sim(spec.card_json));
    case DeviceKind::cuda:
      break;
  }
  throw DeviceError(
      "no CUDA device can be used: this version runs on the cpu and on the simulated card only; use --device "
      "cpu or "
      "--device sim");
}

}  // namespace lowtide::device
