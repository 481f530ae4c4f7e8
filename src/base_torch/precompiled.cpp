// The precompiled header is made with this target and used by all others.
#include "base_torch/precompiled.hpp"
