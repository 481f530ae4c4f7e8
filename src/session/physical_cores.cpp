#include "session/physical_cores.hpp"

#include <sched.h>

#include <fstream>
#include <set>
#include <string>
#include <utility>

namespace lowtide::detail {

int physical_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (::sched_getaffinity(0, sizeof mask, &mask) != 0) return 1;
  std::set<std::pair<int, int>> cores;  // (package, core)
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &mask)) continue;
    const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    int package = -1;
    int core = cpu;
    std::ifstream(folder + "physical_package_id") >> package;
    std::ifstream(folder + "core_id") >> core;
    cores.emplace(package, core);
  }
  return cores.empty() ? 1 : static_cast<int>(cores.size());
}

}  // namespace lowtide::detail
