// --shape-buckets NAME.DIM=1,4,8,16[:pad=VALUE]
#pragma once

#include <string>

#include "lowtide/options.hpp"

namespace lowtide::app {

/// What the option says; whether it suits the model is for the session to see. Throws UsageError.
ShapeBuckets parse_shape_buckets(const std::string& text);

}  // namespace lowtide::app
