#include <torch/version.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/host_facts.hpp"
#include "device/cuda_driver.hpp"
#include "device/device.hpp"
#include "lowtide/commands.hpp"
#include "lowtide/error.hpp"
#include "session/physical_cores.hpp"

namespace lowtide::app {
namespace {

void row(const char* name, const std::string& text) {
  std::printf("  %-22s %s\n", name, text.c_str());
}

std::string bytes_or(const std::optional<Bytes>& bytes, const char* otherwise) {
  return bytes ? format_bytes(*bytes) : otherwise;
}

/// What is left of free memory beside the headroom that other programs and lazily loaded kernels need.
Bytes sensible_cap(const device::DeviceExtras& extras, Bytes free) {
  const Bytes headroom = std::max(256_MiB, extras.total_bytes() / 20);
  const Bytes available =
      free + extras.context_bytes() + extras.library_bytes();  // the two are taken already
  return std::min(extras.total_bytes(), available - std::min(available, headroom));
}

/// Opens the GPU, which gives this process a context on it: what that takes cannot be known otherwise.
void describe_cuda(int index) {
  const std::string name = "cuda:" + std::to_string(index);
  try {
    const device::Device device =
        device::Device::open({.kind = device::DeviceKind::cuda, .index = index, .card_json = {}});
    const device::DeviceExtras& extras = *device.extras();
    const device::DeviceFacts facts = extras.facts();
    row(name.c_str(), extras.name() + ", compute capability " + facts.compute_capability);
    row("  driver", facts.driver);
    row("  memory",
        format_bytes(extras.total_bytes()) + ", " + bytes_or(facts.free_bytes, "unknown") + " free");
    row("  context", format_bytes(extras.context_bytes()) + ", and " + format_bytes(extras.library_bytes()) +
                         " for CUDA's libraries");
    row("  pin limit", bytes_or(facts.pin_limit_bytes, "none"));
    if (facts.free_bytes)
      row("  sensible cap", "--vram-cap up to " + format_bytes(sensible_cap(extras, *facts.free_bytes)));
  } catch (const Error& e) {
    row(name.c_str(), e.what());
  }
}

void describe_cuda() {
  const device::CudaDriver& driver = device::cuda_driver();
  if (!driver.problem.empty()) row("cuda", "none: " + driver.problem);
  for (int index = 0; index < driver.devices; ++index) describe_cuda(index);
}

}  // namespace

int doctor() {
  std::printf("lowtide %s, LibTorch %s\n", LOWTIDE_VERSION, TORCH_VERSION);
  std::printf("host\n");
  row("physical cores", std::to_string(detail::physical_cores()));
  row("memory", bytes_or(total_ram_bytes(), "unknown") + ", " + bytes_or(available_ram_bytes(), "unknown") +
                    " available");
  // Page-locked memory cannot be given to anybody else: half of what is free is a sane upper limit.
  const std::optional<Bytes> available = available_ram_bytes();
  row("sensible pin budget", available ? format_bytes(*available / 2) : "unknown");
  row("locked memory limit", bytes_or(lock_limit_bytes(), "unlimited") + " (ulimit -l)");

  std::printf("devices\n");
  row("cpu", "weights are used in place, nothing is copied or capped");
  describe_cuda();
  const auto card = nlohmann::json::parse(device::default_card_json());
  const Bytes total = card.at("total_bytes").get<Bytes>();
  row("sim", "simulated card '" + card.at("name").get<std::string>() + "', " + format_bytes(total));
  std::printf("caps\n");
  row("--vram-cap", "up to " + format_bytes(total) +
                        " on the simulated card; `lowtide plan MODEL.pt2` shows what each cap costs");
  row("--low-vram", "picks the cap from the plan and gives everything back after each job");
  return 0;
}

}  // namespace lowtide::app
