// Where messages go. By default warnings and information go to stderr, one line each.
#pragma once

#include <functional>
#include <string>

namespace lowtide {

enum class LogLevel { debug, info, warning };

using LogSink = std::function<void(LogLevel, const std::string&)>;

/// Replaces the sink for the whole process; an empty one restores the default. Thread-safe. The sink is
/// called under a lock and must not log itself.
void set_log_sink(LogSink sink);

/// Thread-safe. One line, without newline and without the "lowtide:" prefix.
void log_message(LogLevel level, const std::string& message);

}  // namespace lowtide
