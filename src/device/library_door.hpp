// Device libraries are loaded when their device is opened; each has one function that opens it.
#pragma once

#include <string>

#include "device/device_extras.hpp"

namespace lowtide::device {

/// Does `file` lie where library_door() looks for it? Loads nothing.
bool has_library(const std::string& file);

/// Loads `file` (liblowtide_NAME.so) from where this code lies or from ../lib beside it and gives the
/// function `door`. Null, with one line in `reason`, where there is no such file (`reason` stays empty),
/// where it cannot be loaded, or where it has no such function.
void* library_door(const std::string& file, const char* door, std::string& reason);

}  // namespace lowtide::device
