// The one kernel that runs every operator on the card, and its registration.
#pragma once

namespace lowtide::device::sim {

/// Registers the card's kernel for every aten operator that takes or returns a tensor, and as the fallback
/// for operators of other libraries. Call once, before the first card tensor exists.
void register_kernels();

}  // namespace lowtide::device::sim
