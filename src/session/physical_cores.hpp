// How many physical cores this process may use.
#pragma once

namespace lowtide::detail {

/// At least 1. Hyperthreads share a core; the affinity mask is respected.
int physical_cores();

}  // namespace lowtide::detail
