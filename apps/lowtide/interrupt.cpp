#include "lowtide/interrupt.hpp"

#include <unistd.h>

#include <atomic>
#include <csignal>

#include "lowtide/session.hpp"

namespace lowtide::app {
namespace {

std::atomic<Session*> guarded{nullptr};
std::atomic<int> signals{0};
constexpr int kInterruptedExit = 130;

extern "C" void handle_signal(int) {
  if (signals.fetch_add(1) > 0) ::_exit(kInterruptedExit);
  if (Session* session = guarded.load()) session->cancel();
}

void install(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

InterruptGuard::InterruptGuard(Session& session) {
  signals = 0;
  guarded = &session;
  install(&handle_signal);
}

InterruptGuard::~InterruptGuard() {
  install(SIG_DFL);
  guarded = nullptr;
}

bool InterruptGuard::interrupted() const {
  return signals.load() > 0;
}

}  // namespace lowtide::app
