#include "faults/faulty_card.hpp"

#include <ATen/core/dispatch/Dispatcher.h>
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "lowtide/named_tensors.hpp"
#include "session/describe_inputs.hpp"

namespace lowtide::test {
namespace {

template <class Function>
auto card_operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Function>();
}

std::filesystem::path file_of(const std::string& name, const char* extension) {
  const std::filesystem::path path = std::filesystem::path(LOWTIDE_MODELS) / (name + extension);
  REQUIRE_MESSAGE(std::filesystem::exists(path), path.string() << " is missing: run tools/get_models");
  return path;
}

InputShapes shapes_of(const std::vector<at::Tensor>& inputs) {
  InputShapes shapes;
  for (const at::Tensor& input : inputs) {
    if (!input.defined()) {
      shapes.push_back(std::nullopt);
      continue;
    }
    InputShape shape{.sizes = input.sizes().vec()};
    if (input.dim() == 0 && at::isIntegralType(input.scalar_type(), false))
      shape.integer = input.item().toLong();
    shapes.push_back(shape);
  }
  return shapes;
}

}  // namespace

void inject(const std::string& faults) {
  card_operator<void(const std::string&)>("lowtide_sim::inject").call(faults);
}

CardEvents card_events() {
  const auto stats = nlohmann::json::parse(card_operator<std::string()>("lowtide_sim::stats").call());
  return {.used_bytes = stats.at("used_bytes"),
          .allocations = stats.at("allocations"),
          .copies = stats.at("copies"),
          .page_locks = stats.at("page_locks"),
          .waits = stats.at("waits")};
}

Subject::Subject(const std::string& archive_name)
    : name(archive_name), model(Model::open(file_of(name, ".pt2").string())) {
  inputs = app::read_inputs(model, app::JobInputs(file_of(name, ".in.safetensors")));
  shapes = shapes_of(inputs);
  Session cpu({.device = "cpu", .threads = 1});
  expected = cpu.run(cpu.add(model), inputs);
  Session card({.device = "sim"});
  constexpr Bytes kRoomForPrefetch = 2_MiB;
  tight_cap = *card.plan(card.add(model), shapes).min_cap_bytes + kRoomForPrefetch;
}

SessionOptions tight(const Subject& subject, const std::string& device) {
  return {.device = device, .vram_cap = subject.tight_cap, .after_job = AfterJob::release, .threads = 1};
}

}  // namespace lowtide::test
