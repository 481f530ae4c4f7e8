#include "session/model_data.hpp"

#include <algorithm>
#include <map>

#include "exec/operator_traits.hpp"
#include "exec/reuse_operands.hpp"
#include "exec/write_back.hpp"
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
  /// Steps in `lookups` do not read their table on the device.
  UseCollector(const Graph& graph, const StorageTable& storages, std::size_t files,
               const std::map<NodeId, std::uint32_t>& lookups)
      : graph_(graph), storages_(storages), lookups_(lookups), uses_(files), has_views_(files, false) {}

  std::vector<plan::StorageUse> collect(const graph::WeightTable& weights,
                                        const std::vector<std::uint32_t>& file_of_input) {
    std::vector<std::uint32_t> file_of_storage(storages_.storages.size(), UINT32_MAX);
    for (std::size_t i = 0; i < file_of_input.size(); ++i) {
      if (file_of_input[i] != UINT32_MAX)
        file_of_storage[storages_.of_value[graph_.inputs[i].value]] = file_of_input[i];
    }
    for (NodeId step = 0; step < graph_.nodes.size(); ++step) {
      if (exec::is_skipped(graph_.nodes[step])) continue;
      const auto lookup = lookups_.find(step);
      for (const ValueId value : graph_.nodes[step].read_values()) {
        const std::uint32_t file = file_of(value, file_of_storage);
        if (lookup == lookups_.end() || lookup->second != file) touch(file, step);
      }
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
    // Without views the storage is needed where it is read; a table that the host looks up is not.
    const bool outlives_reads = has_views_[file] || storage.is_output;
    const NodeId last =
        std::max(outlives_reads ? std::min(storage.last, end) : 0, use.uses.empty() ? 0 : use.uses.back());
    if (use.uses.empty()) use.uses.push_back(end);
    // A view made of a weight points to its place: the weight must not move while the view lives.
    if (!has_views_[file] && last == use.uses.back()) return;
    const NodeId first = use.uses.front();
    use.uses.clear();
    for (NodeId step = first; step <= last; ++step) use.uses.push_back(step);
  }

  const Graph& graph_;
  const StorageTable& storages_;
  const std::map<NodeId, std::uint32_t>& lookups_;
  std::vector<plan::StorageUse> uses_;
  std::vector<bool> has_views_;
};

}  // namespace

std::shared_ptr<const ModelData> ModelData::open(const std::filesystem::path& path,
                                                 const std::string& program) {
  archive::Pt2Archive archive = archive::read_pt2(path, program);
  try {
    exec::annotate_operators(archive.program);
    std::vector<std::uint32_t> file_of_input = archive.weights.resolve(archive.program.graph);
    for (std::uint32_t& weight : file_of_input) {
      if (weight != UINT32_MAX) weight = archive.weights.weights[weight].file;
    }
    exec::write_back_mutations(archive.program, file_of_input);
    exec::reuse_operands(archive.program);
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
  find_host_lookups();
  std::map<NodeId, std::uint32_t> lookups;
  for (const HostLookup& lookup : host_lookups_) lookups[lookup.step] = weights_.weights[lookup.weight].file;
  storage_uses_ =
      UseCollector(graph, storages_, weights_.files.size(), lookups).collect(weights_, file_of_input_);
  pack();
  find_splittable();
  no_waves_ = find_obstacle_to_waves();
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
    if (is_caller_input(graph.inputs[i].kind)) user_inputs_.push_back(i);
  }
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    if (graph.outputs[i].kind == graph::OutputKind::user) user_outputs_.push_back(i);
  }
}

/// Units from the storages that travel.
void ModelData::pack() {
  packing_ = plan::pack_units(storage_uses_);
  for (std::size_t u = 0; u < packing_.units.size(); ++u) {
    const auto& content = packing_.content[u];
    const auto named =
        std::find_if(weights_.weights.begin(), weights_.weights.end(),
                     [&](const graph::Weight& weight) { return weight.file == content.front().storage; });
    packing_.units[u].name =
        (named == weights_.weights.end() ? weights_.files[content.front().storage].record : named->name) +
        (content.size() > 1 ? " and " + std::to_string(content.size() - 1) + " more" : "");
  }
}

std::shared_ptr<const ModelData> ModelData::with_kept_state() const {
  std::shared_ptr<ModelData> kept(new ModelData(*this));
  for (std::uint32_t file = 0; file < kept->storage_uses_.size(); ++file) {
    plan::StorageUse& use = kept->storage_uses_[file];
    if (!use.state || use.uses.empty() || use.bytes == 0) continue;
    kept->kept_state_.push_back(file);
    use.state = false;
    use.uses.clear();
  }
  if (kept->kept_state_.empty())
    throw UsageError("'" + path_.filename().string() +
                     "' has no state to keep: it writes none of its buffers; leave --keep-state out");
  kept->pack();
  return kept;
}

/// The weight that an argument names directly, UINT32_MAX where it is none.
std::uint32_t ModelData::weight_argument(const graph::Node& node, std::string_view name) const {
  const graph::Argument* argument = node.find_argument(name);
  const auto* ref = argument == nullptr ? nullptr : std::get_if<graph::Ref>(&argument->value);
  if (ref == nullptr) return UINT32_MAX;
  for (std::size_t i = 0; i < weight_of_input_.size(); ++i) {
    if (program_->graph.inputs[i].value == ref->value) return weight_of_input_[i];
  }
  return UINT32_MAX;
}

void ModelData::find_host_lookups() {
  const Graph& graph = program_->graph;
  for (NodeId step = 0; step < graph.nodes.size(); ++step) {
    const graph::Node& node = graph.nodes[step];
    if (!node.is_operator() || node.op_name() != "aten::embedding" || !node.overload().empty()) continue;
    const std::uint32_t weight = weight_argument(node, "weight");
    if (weight == UINT32_MAX) continue;
    const std::uint32_t file = weights_.weights[weight].file;
    const graph::StorageId storage = storages_.of_value[node.read_values().front()];
    // Small tables travel packed with their neighbours at no cost of their own.
    if (weights_.files[file].bytes < plan::kSmallStorage || storages_.storages[storage].written) continue;
    const auto is_input = [&](const graph::GraphInput& input) {
      return is_caller_input(input.kind) && input.value == node.read_values()[1];
    };
    host_lookups_.push_back({step, weight, std::any_of(graph.inputs.begin(), graph.inputs.end(), is_input)});
    if (std::find(host_tables_.begin(), host_tables_.end(), file) == host_tables_.end())
      host_tables_.push_back(file);
  }
}

void ModelData::find_splittable() {
  const Graph& graph = program_->graph;
  std::map<std::uint32_t, std::size_t> products;  // per file: linear steps that multiply by it
  std::map<std::uint32_t, std::uint32_t> weight_of;
  for (const graph::Node& node : graph.nodes) {
    if (!node.is_operator() || node.op_name() != "aten::linear" || !node.overload().empty()) continue;
    const std::uint32_t weight = weight_argument(node, "weight");
    if (weight == UINT32_MAX) continue;
    ++products[weights_.weights[weight].file];
    weight_of[weights_.weights[weight].file] = weight;
  }
  for (const auto& [file, count] : products) {
    const graph::ConcreteMeta& meta = weights_.weights[weight_of[file]].meta;
    const Bytes element = graph::element_size(meta.dtype);
    const bool whole =
        meta.sizes.size() == 2 && meta.storage_offset == 0 && meta.strides[1] == 1 &&
        meta.strides[0] == meta.sizes[1] && meta.sizes[0] > 1 &&
        static_cast<Bytes>(meta.sizes[0] * meta.sizes[1]) * element == weights_.files[file].bytes;
    // Other names are looked up on the host, or not at all: what the device reads are the products.
    if (!whole || storage_uses_[file].state || storage_uses_[file].uses.size() != count) continue;
    splittable_.push_back(
        {file, static_cast<std::uint64_t>(meta.sizes[0]), static_cast<Bytes>(meta.sizes[1]) * element});
  }
}

std::int64_t ModelData::linear_rows(NodeId step) const {
  return weights_.weights[weight_argument(program_->graph.nodes[step], "weight")].meta.sizes[0];
}

std::string ModelData::find_obstacle_to_waves() const {
  for (const plan::StorageUse& use : storage_uses_) {
    if (use.state) return "it changes its own state";
  }
  for (const graph::Node& node : program_->graph.nodes) {
    if (exec::is_random(node)) return "it draws random numbers";
  }
  return "";
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
