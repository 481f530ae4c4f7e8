// Streams and events as PyTorch sees them.
#pragma once

#include <c10/core/Stream.h>

#include "device/sim/clocks.hpp"

namespace lowtide::device::sim {

/// The calling thread's current stream.
StreamNumber current_stream();

/// Tells c10 how to switch streams, record and wait for events of device "sim".
void register_device_guard();

}  // namespace lowtide::device::sim
