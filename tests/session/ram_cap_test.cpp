// The cap on host memory is kept, as the system counts it: a program of its own, since what other tests leave
// in the heap would count.
#include <doctest/doctest.h>

#include <atomic>
#include <fstream>
#include <string>
#include <thread>

#include "lowtide/error.hpp"
#include "lowtide/named_tensors.hpp"
#include "lowtide/session.hpp"
#include "support/same_bits.hpp"

using namespace lowtide;
namespace fs = std::filesystem;

namespace {

Bytes anonymous_bytes() {
  std::ifstream file("/proc/self/status");
  std::string word;
  while (file >> word) {
    if (word != "RssAnon:") continue;
    Bytes kib = 0;
    file >> kib;
    return kib * 1024;
  }
  return 0;
}

/// The highest anonymous RSS while it lives.
class Sampler {
 public:
  Sampler() : thread_([this] { work(); }) {}
  ~Sampler() {
    if (thread_.joinable()) stop();
  }
  Bytes stop() {
    stop_ = true;
    thread_.join();
    return peak_;
  }

 private:
  void work() {
    while (!stop_) {
      peak_ = std::max(peak_, anonymous_bytes());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  std::atomic<bool> stop_{false};
  Bytes peak_ = 0;
  std::thread thread_;
};

/// Runs a model under a cap, or under the smallest where that is larger, and compares with what the system
/// saw.
void check_cap(const std::string& name, const std::string& device, double share) {
  CAPTURE(name);
  CAPTURE(device);
  const fs::path folder(LOWTIDE_MODELS);
  const Bytes at_start = anonymous_bytes();  // of the program, or with what the model before left in the heap
  Bytes cap = 0, card_bytes = 0;
  Sampler sampler;
  {
    const Model model = Model::open((folder / (name + ".pt2")).string());
    const auto inputs = app::read_inputs(model, app::JobInputs(folder / (name + ".in.safetensors")));
    cap = static_cast<Bytes>(share * static_cast<double>(model.weight_bytes()));
    try {
      Session asking({.device = device, .ram_cap = cap});
      asking.plan(asking.add(model), *model.sample_shapes());
    } catch (const RamCapTooSmall& e) {
      cap = e.min_ram_cap();
    }
    REQUIRE(cap < model.weight_bytes());
    // On the card nothing stays from job to job, else the second would need no disk.
    Session session({.device = device, .ram_cap = cap, .after_job = AfterJob::release});
    const ModelHandle handle = session.add(model);
    for (int i = 0; i < 3; ++i) session.run(handle, inputs);
    CHECK(*session.stats().disk_read_bytes > model.weight_bytes());
    card_bytes = session.stats().peak_bytes.value_or(0);
  }
  const Bytes peak = sampler.stop();
  MESSAGE(name << " on " << device << ": cap " << format_bytes(cap) << ", highest "
               << format_bytes(peak - std::min(peak, at_start + card_bytes)) << " beyond the start");
  CHECK(peak < at_start + card_bytes + cap);
}

}  // namespace

TEST_CASE("the cap on host memory is kept on the cpu") {
  check_cap("resnet50", "cpu", 0.3);
  check_cap("qwen3_static", "cpu", 0.4);
}

TEST_CASE("the cap on host memory is kept on the card") {
  check_cap("resnet50", "sim", 0.3);
  check_cap("qwen3_static", "sim", 0.4);
}

TEST_CASE("large: a model of three times the cap runs, and memory stays below the cap" * doctest::skip()) {
  if (!fs::exists(fs::path(LOWTIDE_MODELS) / "blocks_8x1024.pt2")) {
    MESSAGE("blocks_8x1024 is missing: tools/get_models blocks_8x1024");
    return;
  }
  for (const char* device : {"cpu", "sim"}) check_cap("blocks_8x1024", device, 1.0 / 3);
}
