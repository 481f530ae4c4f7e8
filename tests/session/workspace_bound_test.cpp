// Holds the workspace rules above the truth: every node of every test archive is measured on the simulated
// card.
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "base_torch/dtype_convert.hpp"
#include "device/device.hpp"
#include "exec/executor.hpp"
#include "graph/graph_text.hpp"
#include "lowtide/error.hpp"
#include "lowtide/named_tensors.hpp"
#include "plan/activation_profile.hpp"
#include "session/describe_inputs.hpp"
#include "session/mapped_weights.hpp"
#include "session/model_data.hpp"
#include "support/archives.hpp"

using namespace lowtide;

namespace {

struct Measured {
  Bytes live = 0;
  Bytes need = 0;
};

/// Runs one job with all weights on the card and measures each step.
std::vector<Measured> measure_steps(const Model& model, const std::vector<at::Tensor>& inputs,
                                    const device::Device& card) {
  const detail::ModelData& data = model.data();
  detail::MappedWeights host(data);
  exec::Executor executor(std::make_shared<const exec::BoundProgram>(data.shared_program(), card.torch()));
  const graph::Graph& graph = data.program().graph;
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
    const std::uint32_t weight = data.weight_of_input()[i];
    if (weight != UINT32_MAX && executor.program().is_used(graph.inputs[i].value))
      executor.set_weight(graph.inputs[i].value, host.tensor(weight).to(card.torch()));
  }
  exec::Frame frame = executor.make_frame();
  const Bytes base = card.extras()->counters().used_bytes;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const graph::GraphInput& input = graph.inputs[data.user_inputs()[i]];
    if (!inputs[i].defined() || !executor.program().is_used(input.value)) continue;
    if (graph.values[input.value].kind == graph::ValueKind::tensor) {
      frame[input.value] = inputs[i].to(card.torch());
    } else {
      frame[input.value] = inputs[i].item().toLong();
    }
  }
  std::vector<Measured> steps(graph.nodes.size());
  for (std::size_t step = 0; step < steps.size(); ++step) {
    steps[step].live = card.extras()->counters().used_bytes - base;
    card.extras()->start_window();
    executor.run_step(frame, step);
    steps[step].need = card.extras()->window_peak() - base - steps[step].live;
  }
  return steps;
}

}  // namespace

TEST_CASE(
    "no operator of the test archives takes more than the workspace rules allow, and no step holds more than "
    "planned") {
  const c10::InferenceMode inference;
  const char* other_folder = std::getenv("LOWTIDE_TEST_MODELS");
  const auto archives = test::find_archives(other_folder != nullptr ? other_folder : LOWTIDE_MODELS);
  REQUIRE_MESSAGE(!archives.empty(), "run tools/get_models first");
  const device::Device card = device::Device::open(device::parse_device_spec("sim:20GiB"));
  const bool verbose = std::getenv("LOWTIDE_PRINT_WORKSPACES") != nullptr;
  for (const test::Archive& archive : archives) {
    if (test::has_higher_order(archive.name)) continue;
    CAPTURE(archive.name);
    const Model model = Model::open(archive.path);
    for (const auto& file : archive.inputs) {
      CAPTURE(file.filename().string());
      const std::vector<at::Tensor> inputs =
          detail::complete_inputs(model.data(), app::read_inputs(model, app::JobInputs(file)));
      const graph::Program& program = model.data().program();
      const graph::ShapeTable shapes = graph::evaluate_shapes(
          program, graph::bind_inputs(program, detail::describe_inputs(model.data(), inputs)));
      const graph::StorageTable storages =
          graph::analyse_storages(program.graph, shapes, model.data().file_of_input());
      const plan::ActivationProfile profile =
          plan::profile_activations(program.graph, shapes, storages, at::get_num_threads());
      const std::vector<Measured> measured = measure_steps(model, inputs, card);
      Bytes true_peak = 0;
      for (std::size_t step = 0; step < measured.size(); ++step) {
        const plan::StepMemory& planned = profile.steps[step];
        true_peak = std::max(true_peak, measured[step].live + measured[step].need);
        if (verbose && (measured[step].need > planned.results || planned.workspace > (1 << 20)))
          std::cout << archive.name << "\t" << program.graph.nodes[step].op_name() << "\tresults "
                    << planned.results << "\tbound " << planned.workspace << "\ttrue "
                    << (measured[step].need - std::min(measured[step].need, planned.results)) << "\t"
                    << graph::print_node(program, program.graph, program.graph.nodes[step]).substr(0, 150)
                    << "\n";
        if (measured[step].live > planned.live || measured[step].need > planned.results + planned.workspace) {
          FAIL_CHECK(graph::print_node(program, program.graph, program.graph.nodes[step])
                     << ": live " << measured[step].live << " planned " << planned.live << ", need "
                     << measured[step].need << " planned " << planned.results << " + " << planned.workspace);
        }
      }
      if (verbose)
        std::cout << "PEAK\t" << file.filename().string() << "\ttrue " << true_peak << "\tbound "
                  << profile.peak() << "\tratio "
                  << double(profile.peak()) / double(std::max<Bytes>(true_peak, 1)) << "\tlive "
                  << profile.activation_peak() << "\n";
    }
  }
}
