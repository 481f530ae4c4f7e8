// What opening and planning a model costs a fresh process; bench/opening compares the figures with their
// limits.
//
//   bench_opening MODEL.pt2 [DEVICE]       DEVICE: cpu (default) or sim, of which only the numbers are used
//
// Prints "name value" lines: seconds from the start of main, bytes of resident memory, counts. Nothing runs,
// and the archive is read no further than a plan needs it.
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>

#include "lowtide/lowtide.hpp"
#include "session/model_data.hpp"

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Of this process, mapped files included.
lowtide::Bytes resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::stoull(line.substr(6)) * 1024;
  }
  throw lowtide::Error("/proc/self/status does not tell the resident memory");
}

void measure(const std::string& path, const std::string& device) {
  const auto start = std::chrono::steady_clock::now();
  lowtide::Session session({.device = device});
  const lowtide::Bytes before = resident_bytes();
  const lowtide::Model model = lowtide::Model::open(path);
  const double opened = seconds_since(start);
  const auto shapes = model.sample_shapes();
  if (!shapes) throw lowtide::Error("'" + path + "' does not tell its sample shapes: take another archive");
  const lowtide::PlanSummary plan = session.plan(session.add(model), *shapes);
  const double planned = seconds_since(start);
  session.cap_curve();
  const double drawn = seconds_since(start);
  const lowtide::Bytes after = resident_bytes();

  std::printf("nodes %zu\n", model.data().program().graph.nodes.size());
  std::printf("weight_bytes %llu\n", static_cast<unsigned long long>(model.weight_bytes()));
  std::printf("opened_s %.6f\nplanned_s %.6f\ncurve_s %.6f\n", opened, planned, drawn);
  std::printf("before_model_bytes %llu\n", static_cast<unsigned long long>(before));
  std::printf("growth_bytes %llu\n", static_cast<unsigned long long>(after - before));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fputs("usage: bench_opening MODEL.pt2 [cpu|sim]\n", stderr);
    return 2;
  }
  try {
    measure(argv[1], argc == 3 ? argv[2] : "cpu");
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_opening: error: %s\n", e.what());
    return 1;
  }
}
