// The door of liblowtide_sim.so for C++ programs, which load it with dlopen and never unload it.
#pragma once

#include <cstddef>

#include "device/device_extras.hpp"

/// Makes the process's simulated card the one that `card_json` describes ("{}" for the default card) and
/// returns it; the library owns it. On failure nullptr, and a message of at most error_size - 1 characters in
/// `error`. A card can be replaced while nothing is allocated on it. Loading the library registers device
/// "sim" and replaces PyTorch's CPU allocator.
extern "C" lowtide::device::DeviceExtras* lowtide_sim_open(const char* card_json, char* error,
                                                           std::size_t error_size);
