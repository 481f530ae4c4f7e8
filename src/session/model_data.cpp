#include "session/model_data.hpp"

#include <algorithm>

#include "exec/operator_traits.hpp"
#include "lowtide/error.hpp"

namespace lowtide::detail {
namespace {

using graph::Graph;
using graph::InputKind;
using graph::NodeId;
using graph::StorageOrigin;
using graph::StorageTable;
using graph::ValueId;

bool is_caller_input(InputKind kind) {
  return kind == InputKind::user || kind == InputKind::constant;
}

/// Steps at which each storage of the archive must be on the device.
class UseCollector {
 public:
  UseCollector(const Graph& graph, const StorageTable& storages, std::size_t files)
      : graph_(graph), storages_(storages), uses_(files), has_views_(files, false) {}

  std::vector<plan::StorageUse> collect(const graph::WeightTable& weights,
                                        const std::vector<std::uint32_t>& file_of_input) {
    std::vector<std::uint32_t> file_of_storage(storages_.storages.size(), UINT32_MAX);
    for (std::size_t i = 0; i < file_of_input.size(); ++i) {
      if (file_of_input[i] != UINT32_MAX)
        file_of_storage[storages_.of_value[graph_.inputs[i].value]] = file_of_input[i];
    }
    for (NodeId step = 0; step < graph_.nodes.size(); ++step) {
      if (exec::is_skipped(graph_.nodes[step])) continue;
      for (const ValueId value : graph_.nodes[step].read_values())
        touch(file_of(value, file_of_storage), step);
      for (const ValueId value : graph_.nodes[step].produced()) {
        const std::uint32_t file = file_of(value, file_of_storage);
        if (file != UINT32_MAX) has_views_[file] = true;
      }
    }
    for (std::size_t s = 0; s < storages_.storages.size(); ++s) {
      if (file_of_storage[s] != UINT32_MAX) finish(storages_.storages[s], file_of_storage[s]);
    }
    for (std::size_t f = 0; f < uses_.size(); ++f) uses_[f].bytes = weights.files[f].bytes;
    for (const graph::Weight& weight : weights.weights) {
      unsigned& size = uses_[weight.file].element_size;
      size = std::max(size, graph::element_size(weight.meta.dtype));
    }
    return std::move(uses_);
  }

 private:
  std::uint32_t file_of(ValueId value, const std::vector<std::uint32_t>& file_of_storage) const {
    const graph::StorageId storage = storages_.of_value[value];
    return storage == graph::kNoStorage ? UINT32_MAX : file_of_storage[storage];
  }

  void touch(std::uint32_t file, NodeId step) {
    if (file == UINT32_MAX) return;
    if (uses_[file].uses.empty() || uses_[file].uses.back() != step) uses_[file].uses.push_back(step);
  }

  void finish(const graph::Storage& storage, std::uint32_t file) {
    plan::StorageUse& use = uses_[file];
    use.state = use.state || storage.written;
    if (graph_.nodes.empty() || (use.uses.empty() && !storage.is_output)) return;
    const auto end = static_cast<NodeId>(graph_.nodes.size() - 1);
    const NodeId last = std::max(std::min(storage.last, end), use.uses.empty() ? 0 : use.uses.back());
    if (use.uses.empty()) use.uses.push_back(end);
    // A view made of a weight points to its place: the weight must not move while the view lives.
    if (!has_views_[file] && last == use.uses.back()) return;
    const NodeId first = use.uses.front();
    use.uses.clear();
    for (NodeId step = first; step <= last; ++step) use.uses.push_back(step);
  }

  const Graph& graph_;
  const StorageTable& storages_;
  std::vector<plan::StorageUse> uses_;
  std::vector<bool> has_views_;
};

}  // namespace

std::shared_ptr<const ModelData> ModelData::open(const std::filesystem::path& path,
                                                 const std::string& program) {
  archive::Pt2Archive archive = archive::read_pt2(path, program);
  try {
    exec::annotate_operators(archive.program);
  } catch (const UnsupportedOp& e) {
    throw UnsupportedOp("'" + path.string() + "': " + e.what());
  }
  std::shared_ptr<ModelData> data(new ModelData);
  data->path_ = path;
  data->file_bytes_ = archive.file_bytes;
  data->modified_ns_ = archive.modified_ns;
  data->fingerprint_ = std::move(archive.fingerprint);
  data->program_names_ = std::move(archive.program_names);
  data->program_ = std::make_shared<const graph::Program>(std::move(archive.program));
  data->weights_ = std::move(archive.weights);
  data->analyse();
  return data;
}

void ModelData::analyse() {
  const Graph& graph = program_->graph;
  weight_of_input_ = weights_.resolve(graph);
  for (const std::uint32_t weight : weight_of_input_)
    file_of_input_.push_back(weight == UINT32_MAX ? UINT32_MAX : weights_.weights[weight].file);
  const graph::ShapeTable fixed =
      graph::evaluate_shapes(*program_, graph::SymbolValues(program_->symbols.size(), std::nullopt));
  storages_ = graph::analyse_storages(graph, fixed, file_of_input_);
  storage_uses_ = UseCollector(graph, storages_, weights_.files.size()).collect(weights_, file_of_input_);
  packing_ = plan::pack_units(storage_uses_);
  for (std::size_t u = 0; u < packing_.units.size(); ++u) {
    const auto& content = packing_.content[u];
    packing_.units[u].name =
        weights_.files[content.front().storage].record +
        (content.size() > 1 ? " and " + std::to_string(content.size() - 1) + " more" : "");
  }
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
    if (is_caller_input(graph.inputs[i].kind)) user_inputs_.push_back(i);
  }
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    if (graph.outputs[i].kind == graph::OutputKind::user) user_outputs_.push_back(i);
  }
}

bool ModelData::writes_input(ValueId value) const {
  const graph::StorageId storage = storages_.of_value[value];
  return storage != graph::kNoStorage && storages_.storages[storage].written;
}

bool ModelData::is_borrowed(ValueId value) const {
  const graph::StorageId storage = storages_.of_value[value];
  return storage != graph::kNoStorage && storages_.storages[storage].origin != StorageOrigin::produced;
}

graph::InputDescriptions ModelData::describe(const InputShapes& shapes) const {
  if (shapes.size() > user_inputs_.size())
    throw InputError("the model takes " + std::to_string(user_inputs_.size()) + " inputs, but " +
                     std::to_string(shapes.size()) + " shapes are given");
  graph::InputDescriptions described(user_inputs_.size());
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const graph::GraphInput& input = program_->graph.inputs[user_inputs_[i]];
    if (!shapes[i] || input.kind == InputKind::constant || input.value == graph::kNoValue) continue;
    const graph::Value& value = program_->graph.values[input.value];
    const graph::DType dtype = value.kind == graph::ValueKind::tensor ? value.meta.dtype : graph::DType::i64;
    described[i] =
        graph::InputDescription{.dtype = dtype, .sizes = shapes[i]->sizes, .integer = shapes[i]->integer};
  }
  return described;
}

}  // namespace lowtide::detail

namespace lowtide {

Model Model::open(const std::string& path, const std::string& program) {
  return Model(detail::ModelData::open(path, program));
}

const std::string& Model::path() const {
  return data_->path().native();
}
std::string Model::name() const {
  return data_->path().stem().string();
}
Bytes Model::weight_bytes() const {
  return data_->weights().total_bytes();
}
const std::vector<std::string>& Model::input_names() const {
  return data_->program().user_input_names;
}
const std::vector<std::string>& Model::output_names() const {
  return data_->program().user_output_names;
}

std::optional<InputShapes> Model::sample_shapes() const {
  const auto sample = graph::sample_inputs(data_->program());
  if (!sample) return std::nullopt;
  InputShapes shapes;
  for (const auto& input : *sample)
    shapes.push_back(input ? std::optional(InputShape{input->sizes, input->integer}) : std::nullopt);
  return shapes;
}

}  // namespace lowtide
