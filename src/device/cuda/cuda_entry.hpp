// The door of liblowtide_cuda.so. No CUDA header here.
#pragma once

#include <cstddef>

#include "device/device_extras.hpp"

/// Opens GPU `index` and gives its extras, which live as long as the process; the same ones when called
/// again. Null when it cannot be opened; `error` then holds one line of text, cut to `error_size`. Never
/// throws.
extern "C" lowtide::device::DeviceExtras* lowtide_cuda_open(int index, char* error, std::size_t error_size);
