// What the operating system says about this process and machine.
#pragma once

#include <optional>

#include "lowtide/bytes.hpp"

namespace lowtide {

/// Highest resident set of this process so far.
Bytes host_peak_bytes();
/// Resident set of this process now; nothing where /proc does not tell.
std::optional<Bytes> host_resident_bytes();
/// Memory that programs can still get, the cgroup's limit respected; nothing where /proc does not tell.
std::optional<Bytes> available_ram_bytes();
std::optional<Bytes> total_ram_bytes();
/// Limit on locked memory (ulimit -l); nothing when unlimited.
std::optional<Bytes> lock_limit_bytes();

}  // namespace lowtide
