// The driver's management library, loaded where there is one. It says what the CUDA runtime does not: memory
// in use before a context exists, memory of this process alone, the PCIe link.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lowtide::device::cuda {

/// One device of the library. Everything is optional: no library, old drivers, containers and virtual GPUs
/// answer less. Thread-safe, never throws.
class Nvml {
 public:
  /// `pci_bus_id` as cudaDeviceGetPCIBusId gives it.
  explicit Nvml(const std::string& pci_bus_id);

  /// Memory in use on the device, by anybody. Bytes.
  std::optional<std::uint64_t> used_bytes() const;
  /// Memory that this process uses on the device. Absent where the driver sees other process numbers than we
  /// do (containers) or does not tell (WSL).
  std::optional<std::uint64_t> process_bytes() const;
  /// "580.65.06"
  std::optional<std::string> driver_version() const;
  /// Highest rate of the link that device and slot agree on, one direction, before protocol losses.
  std::optional<double> link_bytes_per_s() const;

 private:
  void* device_ = nullptr;  // nvmlDevice_t; null: no answers
};

}  // namespace lowtide::device::cuda
