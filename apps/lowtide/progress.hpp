// What the user sees while a batch runs: a bar on a terminal, plain lines otherwise, one line per job in
// both.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "lowtide/bytes.hpp"

namespace lowtide::app {

enum class JobStatus { ok, failed, skipped };

struct JobReport {
  std::string id;
  JobStatus status = JobStatus::ok;
  std::string error;  // of a failed job, one line
  double seconds = 0;
  std::optional<Bytes> peak;   // device bytes, highest during the job
  std::optional<Bytes> after;  // device bytes in use after it
};

struct DeviceUse {
  Bytes now = 0;
  Bytes peak = 0;
  std::optional<Bytes> cap;
};

/// State of the bar.
struct BarState {
  std::size_t done = 0;
  std::size_t total = 0;  // 0: not known (jobs come through a pipe)
  double rate = 0;        // jobs per second, 0: not known yet
  std::optional<DeviceUse> device;
};

/// "[#####-----] 12/24   3.1/s   ETA 0:04   device 1.2 GiB, peak 1.9 GiB, cap 2.0 GiB", never longer than
/// `width`: parts are left out from the right, then the bar itself. ASCII only.
std::string bar_text(const BarState& state, std::size_t width);

/// "ok   a.npy   0.123 s   peak 31.2 MiB   after 0 B", or with the reason in place of the sizes. One line,
/// whatever id and error hold.
std::string job_text(const JobReport& job);

/// "12 jobs: 10 ok, 1 failed, 1 skipped   4.213 s   peak 31.2 MiB".
std::string summary_text(std::size_t ok, std::size_t failed, std::size_t skipped, double seconds,
                         std::optional<Bytes> peak);

/// Thread-safe. Never throws for a stream that cannot be written.
class Progress {
 public:
  /// Seconds that only go forward.
  using Clock = std::function<double()>;

  /// `fd` is not closed. `quiet` leaves only the lines of failed jobs. `total` 0: not known.
  Progress(std::size_t total, int fd, bool quiet, Clock clock = steady_seconds);
  /// Takes the bar away.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Draws the bar anew, at most ten times a second; does nothing where there is no terminal.
  void show_device(const DeviceUse& device);
  /// Prints the job's line and counts it.
  void finish_job(const JobReport& job);
  /// Prints a line of somebody else without tearing the bar (for a log sink).
  void print(const std::string& line);
  /// Prints the last line and takes the bar away. Once.
  void finish();

  static double steady_seconds();

 private:
  void draw();
  void erase();
  void write_line(const std::string& line);
  void write(const std::string& text);
  std::size_t width() const;

  std::mutex mutex_;
  int fd_;
  bool quiet_;
  bool terminal_;
  Clock clock_;
  double start_;
  double last_draw_;
  std::size_t drawn_ = 0;  // columns of the bar on screen
  BarState state_;
  std::size_t ok_ = 0;
  std::size_t failed_ = 0;
  std::size_t skipped_ = 0;
  std::optional<Bytes> peak_;
};

}  // namespace lowtide::app
