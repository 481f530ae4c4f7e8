#include "base/host_facts.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace lowtide {
namespace {

std::optional<Bytes> meminfo(const std::string& field) {
  std::ifstream file("/proc/meminfo");
  std::string name;
  Bytes kib = 0;
  std::string unit;
  while (file >> name >> kib) {
    std::getline(file, unit);
    if (name == field + ":") return kib * 1024;
  }
  return std::nullopt;
}

std::optional<Bytes> number_in(const std::string& path) {
  std::ifstream file(path);
  Bytes value = 0;
  if (file >> value) return value;
  return std::nullopt;  // absent, or "max"
}

}  // namespace

Bytes host_peak_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<Bytes>(usage.ru_maxrss) * 1024;
}

std::optional<Bytes> host_resident_bytes() {
  std::ifstream file("/proc/self/statm");
  Bytes total_pages = 0, resident_pages = 0;
  if (!(file >> total_pages >> resident_pages)) return std::nullopt;
  return resident_pages * static_cast<Bytes>(::sysconf(_SC_PAGESIZE));
}

std::optional<Bytes> available_ram_bytes() {
  std::optional<Bytes> available = meminfo("MemAvailable");
  const auto limit = number_in("/sys/fs/cgroup/memory.max");
  const auto used = number_in("/sys/fs/cgroup/memory.current");
  if (limit && used) {
    const Bytes left = *limit > *used ? *limit - *used : 0;
    available = std::min(available.value_or(left), left);
  }
  return available;
}

std::optional<Bytes> total_ram_bytes() {
  return meminfo("MemTotal");
}

std::optional<Bytes> lock_limit_bytes() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

}  // namespace lowtide
