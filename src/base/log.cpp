#include "lowtide/log.hpp"

#include <cstdio>
#include <mutex>
#include <utility>

namespace lowtide {
namespace {

std::mutex sink_mutex;
LogSink sink;  // NOLINT: process-wide by design, guarded by sink_mutex

}  // namespace

void set_log_sink(LogSink new_sink) {
  const std::lock_guard lock(sink_mutex);
  sink = std::move(new_sink);
}

void log_message(LogLevel level, const std::string& message) {
  const std::lock_guard lock(sink_mutex);
  if (sink) {
    sink(level, message);
  } else if (level != LogLevel::debug) {
    std::fprintf(stderr, "lowtide: %s\n", message.c_str());
  }
}

}  // namespace lowtide
