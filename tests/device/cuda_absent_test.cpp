// Each way of having no GPU is one line of its own and exit code 5; a driver of our own plays them all.
#include <doctest/doctest.h>

#include <cstdlib>

#include "support/program.hpp"

using namespace lowtide::test;

namespace {

/// `lowtide ARGUMENTS` where the driver answers `status` and has `devices`.
Outcome with_driver(const char* status, const char* devices, const std::vector<std::string>& arguments) {
  ::setenv("LD_LIBRARY_PATH", LOWTIDE_FAKE_DRIVER_FOLDER, 1);
  ::setenv("FAKE_CUDA_STATUS", status, 1);
  ::setenv("FAKE_CUDA_DEVICES", devices, 1);
  const TempFolder cache;
  const Outcome outcome = run_lowtide(arguments, cache.path());
  ::unsetenv("LD_LIBRARY_PATH");
  return outcome;
}

void check_refused(const char* status, const char* devices, const char* device, const char* reason) {
  const TempFolder folder;
  const Outcome outcome =
      with_driver(status, devices,
                  {"run", "none.pt2", "none.npy", "--out", (folder / "out").string(), "--device", device});
  CAPTURE(outcome.err);
  CHECK(outcome.code == 5);
  CHECK(outcome.out == "");
  CHECK(outcome.err.starts_with("lowtide: error: "));
  CHECK(outcome.err.find('\n') == outcome.err.size() - 1);
  CHECK(outcome.err.find(reason) != std::string::npos);
}

}  // namespace

TEST_CASE("no device, a broken driver, an index beyond, a runtime that finds nothing: each is named") {
  check_refused("100", "0", "cuda", "the NVIDIA driver has no device");
  check_refused("0", "0", "cuda", "the NVIDIA driver has no device");
  check_refused("803", "0", "cuda", "the NVIDIA driver does not start (error 803)");
  check_refused("0", "1", "cuda:2", "there is no cuda:2: the NVIDIA driver has 1 device");
  check_refused("0", "1", "cuda", "the CUDA runtime finds no device");
}

TEST_CASE("without --device the GPU is taken if there is one, and doctor says what is wrong with it") {
  const TempFolder folder;
  const Outcome run =
      with_driver("0", "1", {"run", "none.pt2", "none.npy", "--out", (folder / "out").string()});
  CHECK(run.code == 5);
  const Outcome none =
      with_driver("100", "0", {"run", "none.pt2", "none.npy", "--out", (folder / "out").string()});
  CHECK(none.code != 5);  // the cpu, where the missing archive is what is wrong
  const Outcome doctor = with_driver("0", "2", {"doctor"});
  CHECK(doctor.code == 0);
  for (const char* part : {"cuda:0", "cuda:1", "the CUDA runtime finds no device"})
    CHECK(doctor.out.find(part) != std::string::npos);
}
