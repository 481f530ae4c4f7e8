#include "lowtide/named_tensors.hpp"

#include <ATen/ops/view_as_real.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "lowtide/error.hpp"
#include "session/model_data.hpp"

namespace lowtide::app {
namespace {

std::string input_list(const Model& model) {
  std::string text;
  for (const std::string& name : model.input_names()) text += (text.empty() ? "" : ", ") + name;
  return text;
}

bool all_digits(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// The only input that the caller can vary.
std::size_t only_input(const Model& model) {
  std::vector<std::size_t> free;
  const detail::ModelData& data = model.data();
  for (std::size_t i = 0; i < data.user_inputs().size(); ++i) {
    if (data.program().graph.inputs[data.user_inputs()[i]].kind == graph::InputKind::user) free.push_back(i);
  }
  if (free.size() != 1)
    throw InputError("an unnamed tensor can only feed a model with one input; this one takes " +
                     input_list(model) + ": name the tensors");
  return free.front();
}

std::size_t input_position(const Model& model, const std::string& name) {
  const auto& names = model.input_names();
  if (name.empty()) return only_input(model);
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  std::size_t position = names.size();
  if (all_digits(name)) std::from_chars(name.data(), name.data() + name.size(), position);
  if (position >= names.size())
    throw InputError("the model has no input '" + name + "': its inputs are " + input_list(model) +
                     " (or 0000 to " + std::to_string(names.empty() ? 0 : names.size() - 1) +
                     " by position)");
  return position;
}

/// Calls `use(name, path, item)` for each tensor of the job, with `load` giving the items of a file.
template <class Load, class Use>
void for_each_tensor(const JobInputs& inputs, Load load, Use use) {
  if (const auto* path = std::get_if<std::filesystem::path>(&inputs)) {
    for (auto& item : load(*path)) use(item.name, item);
    return;
  }
  for (const auto& [name, path] : std::get<std::map<std::string, std::filesystem::path>>(inputs)) {
    auto items = load(path);
    auto chosen =
        std::find_if(items.begin(), items.end(), [&](const auto& item) { return item.name == name; });
    if (chosen == items.end() && items.size() == 1) chosen = items.begin();
    if (chosen == items.end())
      throw InputError("'" + path.string() + "' holds " + std::to_string(items.size()) +
                       " tensors, none of them named '" + name +
                       "': name it, or give a file with one tensor");
    use(name, *chosen);
  }
}

}  // namespace

std::vector<std::size_t> input_positions(const Model& model, const std::vector<std::string>& names) {
  std::vector<std::size_t> positions;
  for (const std::string& name : names) {
    const std::size_t position = input_position(model, name);
    if (std::find(positions.begin(), positions.end(), position) != positions.end())
      throw InputError("input '" + model.input_names()[position] + "' is given twice: once is enough");
    positions.push_back(position);
  }
  return positions;
}

std::vector<at::Tensor> read_inputs(const Model& model, const JobInputs& inputs) {
  std::vector<std::string> names;
  std::vector<at::Tensor> tensors;
  for_each_tensor(inputs, tensor_file::read_tensors,
                  [&](const std::string& name, tensor_file::NamedTensor& item) {
                    names.push_back(name);
                    tensors.push_back(item.tensor);
                  });
  const std::vector<std::size_t> positions = input_positions(model, names);
  std::vector<at::Tensor> ordered(model.input_names().size());
  for (std::size_t i = 0; i < positions.size(); ++i) ordered[positions[i]] = tensors[i];
  return ordered;
}

InputShapes read_shapes(const Model& model, const JobInputs& inputs) {
  std::vector<std::string> names;
  std::vector<tensor_file::TensorEntry> entries;
  for_each_tensor(inputs, tensor_file::read_header,
                  [&](const std::string& name, tensor_file::TensorEntry& item) {
                    names.push_back(name);
                    entries.push_back(item);
                  });
  const std::vector<std::size_t> positions = input_positions(model, names);
  const detail::ModelData& data = model.data();
  InputShapes shapes(model.input_names().size());
  graph::InputDescriptions described(shapes.size());
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const graph::GraphInput& input = data.program().graph.inputs[data.user_inputs()[positions[i]]];
    if (input.kind == graph::InputKind::constant || input.value == graph::kNoValue) continue;
    const graph::Value& value = data.program().graph.values[input.value];
    tensor_file::TensorEntry& entry = entries[i];
    const bool complex = value.meta.dtype == graph::DType::c64 || value.meta.dtype == graph::DType::c128;
    if (complex && (entry.dtype == graph::DType::f32 || entry.dtype == graph::DType::f64) &&
        !entry.sizes.empty() && entry.sizes.back() == 2) {
      entry.dtype = value.meta.dtype;
      entry.sizes.pop_back();
    }
    const bool symbolic = value.kind == graph::ValueKind::sym_int;
    shapes[positions[i]] = InputShape{entry.sizes, symbolic ? entry.integer : std::nullopt};
    described[positions[i]] = {entry.dtype, entry.sizes, shapes[positions[i]]->integer};
  }
  graph::bind_inputs(data.program(), described);
  return shapes;
}

NamedResults name_results(const Model& model, const std::vector<at::Tensor>& results) {
  NamedResults named;
  nlohmann::json names = nlohmann::json::array();
  for (std::size_t i = 0; i < results.size(); ++i) {
    const std::string& name = model.output_names()[i];
    names.push_back(name);
    if (!results[i].defined()) continue;
    at::Tensor tensor = results[i];
    if (tensor.is_complex()) {
      named.metadata[name] = std::string(c10::toString(tensor.scalar_type())) + " as real pairs";
      tensor = at::view_as_real(tensor.resolve_conj());
    }
    named.tensors.push_back({name, tensor.contiguous()});
  }
  named.metadata["names"] = names.dump();
  return named;
}

void hash_results(Sha256& hash, const NamedResults& results) {
  for (const tensor_file::NamedTensor& item : results.tensors) {
    const at::Tensor& tensor = item.tensor;
    std::string head = item.name + '\n' + std::string(c10::toString(tensor.scalar_type())) + '\n';
    for (const std::int64_t size : tensor.sizes()) head += std::to_string(size) + ' ';
    hash.update(head + '\n');
    hash.update(tensor.const_data_ptr(), tensor.nbytes());
  }
}

}  // namespace lowtide::app
