#include "lowtide/progress.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <pty.h>
#include <unistd.h>

#include <array>

#include "../tensor_file/temp_dir.hpp"

using namespace lowtide;
using namespace lowtide::app;
using lowtide::test::contains;

namespace {

/// A stream whose text can be read back: a pipe, or a terminal of 60 columns.
class Screen {
 public:
  explicit Screen(bool terminal) {
    struct winsize size {};
    size.ws_col = 60;
    std::array<int, 2> ends{};
    const bool ok =
        terminal ? ::openpty(&ends[0], &ends[1], nullptr, nullptr, &size) == 0 : ::pipe(ends.data()) == 0;
    REQUIRE(ok);
    ours_ = ends[0];
    theirs_ = ends[1];
    ::fcntl(ours_, F_SETFL, O_NONBLOCK);
  }
  ~Screen() {
    ::close(ours_);
    ::close(theirs_);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  int fd() const { return theirs_; }
  std::string take() {
    std::string text;
    std::array<char, 4096> part;
    for (ssize_t got = 0; (got = ::read(ours_, part.data(), part.size())) > 0;)
      text.append(part.data(), static_cast<std::size_t>(got));
    return text;
  }

 private:
  int ours_ = -1;
  int theirs_ = -1;
};

JobReport ok_job(const std::string& id) {
  return {id, JobStatus::ok, "", 0.5, 1_MiB, 0};
}

}  // namespace

TEST_CASE("the line of a job tells status, seconds, peak and what is left on the device") {
  CHECK(job_text({"a.safetensors", JobStatus::ok, "", 0.1234, Bytes{32715571}, 0}) ==
        "ok   a.safetensors   0.123 s   peak 31.2 MiB   after 0 B");
  CHECK(job_text({"a", JobStatus::ok, "", 2, {}, {}}) == "ok   a   2.000 s");
  CHECK(job_text({"a\nb", JobStatus::failed, "bad\nshape", 0, 1_KiB, 0}) ==
        "failed   a\\x0ab   0.000 s   bad shape");
  CHECK(contains(job_text({"a", JobStatus::skipped, "", 0, {}, {}}), "skipped   a"));
}

TEST_CASE("the bar shows count, rate, time left and device memory") {
  const BarState state{5, 10, 2.0, DeviceUse{1_MiB, 2_MiB, 4_MiB}};
  CHECK(bar_text(state, 200) ==
        "[##########----------] 5/10   2.0/s   ETA 0:03   device 1.0 MiB, peak 2.0 MiB, cap 4.0 MiB");
  CHECK(contains(bar_text({0, 36000, 1.0, {}}, 200), "ETA 10:00:00"));
  CHECK(bar_text({3, 0, 2.0, {}}, 200) == "3 done   2.0/s");
}

TEST_CASE("the bar never exceeds the width it is given and drops the least important first") {
  const BarState state{5, 10, 2.0, DeviceUse{1_MiB, 2_MiB, 4_MiB}};
  for (std::size_t width = 0; width < 120; ++width) CHECK(bar_text(state, width).size() <= width);
  CHECK(bar_text(state, 60) == "[##########----------] 5/10   2.0/s   ETA 0:03");
  CHECK(contains(bar_text(state, 20), "5/10   2.0/s"));
}

TEST_CASE("without a terminal there are plain lines only: one per job and a summary") {
  Screen screen(false);
  {
    Progress progress(3, screen.fd(), false, [] { return 0.0; });
    progress.show_device({1, 2, 3});
    progress.finish_job(ok_job("a"));
    progress.finish_job({"b", JobStatus::failed, "bad", 0.5, {}, {}});
    progress.finish_job({"c", JobStatus::skipped, "", 0, {}, {}});
    progress.finish();
  }
  CHECK(screen.take() ==
        "ok   a   0.500 s   peak 1.0 MiB   after 0 B\n"
        "failed   b   0.500 s   bad\n"
        "skipped   c   done by an earlier run\n"
        "3 jobs: 1 ok, 1 failed, 1 skipped   0.000 s   peak 1.0 MiB\n");
}

TEST_CASE("quiet leaves the failures") {
  Screen screen(true);
  Progress progress(2, screen.fd(), true);
  progress.show_device({1, 2, 3});
  progress.finish_job(ok_job("a"));
  progress.finish_job({"b", JobStatus::failed, "bad", 0.5, {}, {}});
  progress.finish();
  CHECK(screen.take() == "failed   b   0.500 s   bad\r\n");
}

TEST_CASE("on a terminal the bar is drawn at most ten times a second, within its width, and taken away") {
  Screen screen(true);
  double now = 100;
  Progress progress(4, screen.fd(), false, [&] { return now; });
  now = 101;
  progress.finish_job(ok_job("a"));
  const std::string bar =
      "[#####---------------] 1/4   1.0/s   ETA 0:03";  // 60 columns have no room for the device
  const std::string erased = "\r" + std::string(bar.size(), ' ') + "\r";
  CHECK(screen.take() == "ok   a   0.500 s   peak 1.0 MiB   after 0 B\r\n\r" + bar);
  progress.show_device({1, 2, {}});
  now = 101.05;
  progress.show_device({1, 2, {}});
  CHECK(screen.take().empty());
  now = 101.2;
  progress.show_device({1, 2, {}});
  CHECK(screen.take() == "\r" + bar);
  progress.print("note");
  CHECK(screen.take() == erased + "note\r\n");
  now = 102;
  progress.show_device({1, 2, {}});
  screen.take();
  progress.finish();
  CHECK(screen.take() == erased + "1 job: 1 ok   2.000 s   peak 1.0 MiB\r\n");
}

TEST_CASE("skipped jobs count as done but not for the rate") {
  Screen screen(true);
  double now = 0;
  Progress progress(4, screen.fd(), false, [&] { return now; });
  progress.finish_job({"a", JobStatus::skipped, "", 0, {}, {}});
  now = 2;
  screen.take();
  progress.finish_job(ok_job("b"));
  CHECK(contains(screen.take(), "2/4   0.5/s   ETA 0:04"));
}
