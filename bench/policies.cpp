// What the search of the residency planner buys: predicted times of one model under caps, as searched and
// with the habit of stable-diffusion.cpp (leading units resident, the next unit fetched one ahead).
//
//   bench_policies [--release] MODEL.pt2 INPUT.safetensors CAP...
//
// Caps are bytes on the default card, context included. --release: nothing stays from job to job. Measured
// peaks and times are read from the learned file of `lowtide run`. Prints {"CAP": {"search_s": ...,
// "prefix_s": ...}}; null where a cap is too small.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "device/device_spec.hpp"
#include "lowtide/lowtide.hpp"
#include "lowtide/named_tensors.hpp"
#include "session/model_planner.hpp"
#include "session/physical_cores.hpp"

namespace {

using namespace lowtide;

struct Options {
  bool keeps = true;
  std::string model;
  std::string input;
  std::vector<Bytes> caps;
};

Options parse(int argc, char** argv) {
  Options options;
  int next = 1;
  if (next < argc && std::strcmp(argv[next], "--release") == 0) {
    options.keeps = false;
    ++next;
  }
  if (argc - next < 3)
    throw UsageError("usage: bench_policies [--release] MODEL.pt2 INPUT.safetensors CAP...");
  options.model = argv[next];
  options.input = argv[next + 1];
  for (int i = next + 2; i < argc; ++i) options.caps.push_back(std::stoull(argv[i]));
  return options;
}

/// The file in which `lowtide run` keeps what it measured.
std::string learned_file() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  return cache == nullptr ? "" : std::string(cache) + "/lowtide/learned.json";
}

nlohmann::json measure(const Options& options) {
  const Model model = Model::open(options.model);
  const device::sim::Card card = device::sim::parse_card(device::parse_device_spec("sim").card_json);
  const detail::LearnedShapes learned(learned_file());
  const InputShapes given = app::read_shapes(model, app::JobInputs(std::filesystem::path(options.input)));
  const std::vector<detail::ShapePlan> shapes{detail::make_shape_plan(
      model.data(), model.data().describe(given), card, learned, detail::physical_cores())};
  const detail::ModelPlanner planner(model.data(), shapes, {.card = &card, .keeps = options.keeps});
  const plan::ResidencySearch& search = planner.smallest().search();
  nlohmann::json times = nlohmann::json::object();
  for (const Bytes cap : options.caps) {
    const Bytes fixed = card.context_bytes + planner.alone_bytes();
    nlohmann::json& entry = times[std::to_string(cap)];
    if (cap < fixed + search.min_slab_bytes()) continue;
    const Bytes slab = std::min(cap - fixed, search.full_slab_bytes());
    entry["search_s"] = search.plan(slab, options.keeps).predicted_s;
    entry["prefix_s"] = search.prefix_plan(slab, options.keeps).predicted_s;
  }
  return times;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::printf("%s\n", measure(parse(argc, argv)).dump().c_str());
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_policies: error: %s\n", e.what());
    return 1;
  }
}
