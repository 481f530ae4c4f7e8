#include "device/cuda/nvml.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <vector>

namespace lowtide::device::cuda {
namespace {

// Declared by hand: nvml.h comes with toolkits only, and these layouts are frozen by their version suffix.
using Device = void*;
using Status = int;
constexpr Status kOk = 0;
constexpr Status kTooSmall = 7;
constexpr unsigned long long kNotAvailable = ~0ULL;

struct Memory {
  unsigned long long total, free, used;
};
struct Process {  // of the functions that end in _v3
  unsigned int pid;
  unsigned long long used_bytes;
  unsigned int gpu_instance, compute_instance;
};

struct Library {
  Status (*init)() = nullptr;
  Status (*device_of)(const char*, Device*) = nullptr;
  Status (*memory)(Device, Memory*) = nullptr;
  Status (*processes)(Device, unsigned int*, Process*) = nullptr;
  Status (*driver)(char*, unsigned int) = nullptr;
  Status (*link_generation)(Device, unsigned int*) = nullptr;
  Status (*link_width)(Device, unsigned int*) = nullptr;
  bool usable = false;

  Library() {
    void* handle = ::dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (handle == nullptr) return;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
    };
    find(init, "nvmlInit_v2");
    find(device_of, "nvmlDeviceGetHandleByPciBusId_v2");
    find(memory, "nvmlDeviceGetMemoryInfo");
    find(processes, "nvmlDeviceGetComputeRunningProcesses_v3");
    find(driver, "nvmlSystemGetDriverVersion");
    find(link_generation, "nvmlDeviceGetMaxPcieLinkGeneration");
    find(link_width, "nvmlDeviceGetMaxPcieLinkWidth");
    usable = init != nullptr && device_of != nullptr && init() == kOk;
  }
};

const Library& library() {
  static const auto* const loaded = new Library;
  return *loaded;
}

}  // namespace

Nvml::Nvml(const std::string& pci_bus_id) {
  if (library().usable && library().device_of(pci_bus_id.c_str(), &device_) != kOk) device_ = nullptr;
}

std::optional<std::uint64_t> Nvml::used_bytes() const {
  Memory memory{};
  if (device_ == nullptr || library().memory == nullptr || library().memory(device_, &memory) != kOk)
    return std::nullopt;
  return memory.used;
}

std::optional<std::uint64_t> Nvml::process_bytes() const {
  if (device_ == nullptr || library().processes == nullptr) return std::nullopt;
  std::vector<Process> processes(64);
  Status status = kTooSmall;
  for (int attempt = 0; attempt < 3 && status == kTooSmall; ++attempt) {  // others may start meanwhile
    auto count = static_cast<unsigned int>(processes.size());
    status = library().processes(device_, &count, processes.data());
    processes.resize(status == kTooSmall ? count + 64 : count);
  }
  if (status != kOk) return std::nullopt;
  for (const Process& process : processes) {
    if (process.pid == static_cast<unsigned int>(::getpid()) && process.used_bytes != kNotAvailable)
      return process.used_bytes;
  }
  return std::nullopt;
}

std::optional<std::string> Nvml::driver_version() const {
  std::array<char, 96> text{};
  if (device_ == nullptr || library().driver == nullptr || library().driver(text.data(), text.size()) != kOk)
    return std::nullopt;
  return std::string(text.data());
}

std::optional<double> Nvml::link_bytes_per_s() const {
  unsigned int generation = 0, width = 0;
  if (device_ == nullptr || library().link_generation == nullptr || library().link_width == nullptr ||
      library().link_generation(device_, &generation) != kOk || library().link_width(device_, &width) != kOk)
    return std::nullopt;
  // Bytes a second of one lane, after line coding, by generation 1 to 6.
  constexpr std::array<double, 6> kLane{0.25e9, 0.5e9, 0.985e9, 1.969e9, 3.938e9, 7.563e9};
  if (generation < 1 || generation > kLane.size() || width == 0) return std::nullopt;
  return kLane[generation - 1] * width;
}

}  // namespace lowtide::device::cuda
