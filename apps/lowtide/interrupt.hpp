// Ctrl-C: once, the present layer is finished and everything is cleaned up; twice, the program ends at once.
#pragma once

namespace lowtide {
class Session;
}

namespace lowtide::app {

/// Handles SIGINT and SIGTERM while it lives. One at a time. The session must outlive it.
class InterruptGuard {
 public:
  explicit InterruptGuard(Session& session);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  bool interrupted() const;
};

}  // namespace lowtide::app
