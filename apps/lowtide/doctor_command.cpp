#include <torch/version.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "device/device.hpp"
#include "lowtide/commands.hpp"
#include "lowtide/host_facts.hpp"
#include "session/physical_cores.hpp"

namespace lowtide::app {
namespace {

void row(const char* name, const std::string& text) {
  std::printf("  %-22s %s\n", name, text.c_str());
}

std::string bytes_or(const std::optional<Bytes>& bytes, const char* otherwise) {
  return bytes ? format_bytes(*bytes) : otherwise;
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
  row("cuda", device::cuda_available()
                  ? "available"
                  : "this version does not use GPUs; run on the cpu or the simulated card");
  const auto card = nlohmann::json::parse(device::default_card_json());
  const Bytes total = card.at("total_bytes").get<Bytes>();
  row("sim", "simulated card '" + card.at("name").get<std::string>() + "', " + format_bytes(total));
  std::printf("caps\n");
  row("--vram-cap",
      "up to " + format_bytes(total) + " on that card; `lowtide plan MODEL.pt2` shows what each cap costs");
  row("--low-vram", "picks the cap from the plan and gives everything back after each job");
  return 0;
}

}  // namespace lowtide::app
