#include "progress.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

#include "tensor_file/file_error.hpp"

namespace lowtide::app {
namespace {

using tensor_file::printable;

constexpr const char* kGap = "   ";
constexpr double kSecondsBetweenDraws = 0.1;

std::string number(const char* format, double value) {
  std::array<char, 48> text;
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

/// "0:04", "12:34", "3:00:12".
std::string duration(double seconds) {
  constexpr double kLongest = 99.0 * 3600;  // beyond that it is a guess
  const auto whole = static_cast<int>(std::ceil(std::clamp(seconds, 0.0, kLongest)));
  std::array<char, 32> text;
  if (whole >= 3600) {
    std::snprintf(text.data(), text.size(), "%d:%02d:%02d", whole / 3600, whole / 60 % 60, whole % 60);
  } else {
    std::snprintf(text.data(), text.size(), "%d:%02d", whole / 60, whole % 60);
  }
  return text.data();
}

const char* status_name(JobStatus status) {
  switch (status) {
    case JobStatus::ok:
      return "ok";
    case JobStatus::failed:
      return "failed";
    case JobStatus::skipped:
      return "skipped";
  }
  return "unknown";
}

std::string device_text(const DeviceUse& device) {
  std::string text = "device " + format_bytes(device.now) + ", peak " + format_bytes(device.peak);
  if (device.cap) text += ", cap " + format_bytes(*device.cap);
  return text;
}

}  // namespace

std::string bar_text(const BarState& state, std::size_t width) {
  constexpr std::size_t kCells = 20;
  const bool known = state.total > 0;
  const std::string count =
      std::to_string(state.done) + (known ? "/" + std::to_string(state.total) : " done");
  std::vector<std::string> parts;
  if (known) {
    const std::size_t filled = std::min(state.done, state.total) * kCells / state.total;
    parts.push_back("[" + std::string(filled, '#') + std::string(kCells - filled, '-') + "] " + count);
  } else {
    parts.push_back(count);
  }
  if (state.rate > 0) {
    parts.push_back(number("%.1f/s", state.rate));
    if (known)
      parts.push_back("ETA " + duration(static_cast<double>(state.total - std::min(state.done, state.total)) /
                                        state.rate));
  }
  if (state.device) parts.push_back(device_text(*state.device));

  std::string text = parts.front().size() <= width ? parts.front() : count;
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::string longer = text + kGap + parts[i];
    if (longer.size() > width) break;
    text = longer;
  }
  return text.substr(0, width);
}

std::string job_text(const JobReport& job) {
  std::string text = status_name(job.status) + (kGap + printable(job.id));
  if (job.status == JobStatus::skipped) return text + kGap + "done by an earlier run";
  text += kGap + number("%.3f s", job.seconds);
  if (job.status == JobStatus::failed) {
    std::string reason = job.error;
    std::replace_if(
        reason.begin(), reason.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
    return text + kGap + reason;
  }
  if (job.peak) text += kGap + ("peak " + format_bytes(*job.peak));
  if (job.after) text += kGap + ("after " + format_bytes(*job.after));
  return text;
}

std::string summary_text(std::size_t ok, std::size_t failed, std::size_t skipped, double seconds,
                         std::optional<Bytes> peak) {
  const std::size_t all = ok + failed + skipped;
  std::string text = std::to_string(all) + (all == 1 ? " job: " : " jobs: ") + std::to_string(ok) + " ok";
  if (failed > 0) text += ", " + std::to_string(failed) + " failed";
  if (skipped > 0) text += ", " + std::to_string(skipped) + " skipped";
  text += kGap + number("%.3f s", seconds);
  if (peak) text += kGap + ("peak " + format_bytes(*peak));
  return text;
}

Progress::Progress(std::size_t total, int fd, bool quiet, Clock clock)
    : fd_(fd), quiet_(quiet), terminal_(::isatty(fd) == 1), clock_(std::move(clock)), start_(clock_()) {
  last_draw_ = start_ - kSecondsBetweenDraws;
  state_.total = total;
}

Progress::~Progress() {
  erase();
}

double Progress::steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Progress::show_device(const DeviceUse& device) {
  const std::lock_guard lock(mutex_);
  state_.device = device;
  draw();
}

void Progress::finish_job(const JobReport& job) {
  const std::lock_guard lock(mutex_);
  ++state_.done;
  ++(job.status == JobStatus::ok ? ok_ : job.status == JobStatus::failed ? failed_ : skipped_);
  if (job.peak) peak_ = std::max(peak_.value_or(0), *job.peak);
  const double elapsed = clock_() - start_;
  // Skipped jobs take no time and would promise too much.
  if (elapsed > 0) state_.rate = static_cast<double>(ok_ + failed_) / elapsed;
  if (!quiet_ || job.status == JobStatus::failed) write_line(job_text(job));
  draw();
}

void Progress::print(const std::string& line) {
  const std::lock_guard lock(mutex_);
  write_line(line);
  draw();
}

void Progress::finish() {
  const std::lock_guard lock(mutex_);
  erase();
  if (!quiet_) write_line(summary_text(ok_, failed_, skipped_, clock_() - start_, peak_));
  terminal_ = false;  // nothing is drawn any more
}

void Progress::draw() {
  if (!terminal_ || quiet_) return;
  const double now = clock_();
  if (now - last_draw_ < kSecondsBetweenDraws) return;
  last_draw_ = now;
  const std::string text = bar_text(state_, width());
  // Blanks instead of an escape sequence: works on every terminal.
  const std::size_t rest = drawn_ > text.size() ? drawn_ - text.size() : 0;
  write("\r" + text + std::string(rest, ' '));
  drawn_ = text.size() + rest;
}

void Progress::erase() {
  if (drawn_ == 0) return;
  write("\r" + std::string(drawn_, ' ') + "\r");
  drawn_ = 0;
}

void Progress::write_line(const std::string& line) {
  erase();
  write(line + "\n");
}

void Progress::write(const std::string& text) {
  const char* from = text.data();
  std::size_t size = text.size();
  while (size > 0) {
    const ssize_t put = ::write(fd_, from, size);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return;
    from += put;
    size -= static_cast<std::size_t>(put);
  }
}

std::size_t Progress::width() const {
  constexpr std::size_t kUsual = 80;
  struct winsize size {};
  const bool known = ::ioctl(fd_, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return (known ? size.ws_col : kUsual) - 1;  // a full last column would wrap
}

}  // namespace lowtide::app
