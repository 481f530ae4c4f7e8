// Python stack traces that export keeps with each node.
#pragma once

#include <string>
#include <string_view>

namespace lowtide::archive {

/// The innermost frame that lies in a file, as "file.py:12 in forward" without folders; empty when there is
/// none.
std::string innermost_frame(std::string_view trace);

}  // namespace lowtide::archive
