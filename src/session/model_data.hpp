// What a Model handle points to: the archive with its program annotated, and how its weights are used.
// Immutable.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "archive/pt2_archive.hpp"
#include "graph/input_binding.hpp"
#include "graph/storages.hpp"
#include "lowtide/model.hpp"
#include "memory/checked_file.hpp"
#include "plan/unit_packing.hpp"
#include "plan/weight_split.hpp"

namespace lowtide::detail {

/// An embedding whose table stays on the host: only the rows that a job asks for travel.
struct HostLookup {
  graph::NodeId step = 0;
  std::uint32_t weight = 0;        // index into weights().weights
  bool indices_are_input = false;  // the caller's tensor, which the host has
};

class ModelData {
 public:
  static std::shared_ptr<const ModelData> open(const std::filesystem::path& path, const std::string& program);

  /// The same model for a session that keeps its state from job to job (ModelState): storages that the
  /// program writes are no weights that travel any more. Throws UsageError where it writes none.
  std::shared_ptr<const ModelData> with_kept_state() const;

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t file_bytes() const { return file_bytes_; }
  std::int64_t modified_ns() const { return modified_ns_; }
  memory::FileIdentity file() const { return {path_, file_bytes_, modified_ns_}; }
  const std::string& fingerprint() const { return fingerprint_; }
  const std::vector<std::string>& program_names() const { return program_names_; }
  const graph::Program& program() const { return *program_; }
  std::shared_ptr<const graph::Program> shared_program() const { return program_; }
  const graph::WeightTable& weights() const { return weights_; }

  /// Per graph input: index into weights().weights, UINT32_MAX where it is no weight.
  const std::vector<std::uint32_t>& weight_of_input() const { return weight_of_input_; }
  /// Per graph input: index into weights().files, UINT32_MAX where it is no weight.
  const std::vector<std::uint32_t>& file_of_input() const { return file_of_input_; }
  /// Per file: when it is read and whether the program writes it.
  const std::vector<plan::StorageUse>& storage_uses() const { return storage_uses_; }
  /// How the used files travel.
  const plan::Packing& packing() const { return packing_; }
  const std::vector<HostLookup>& host_lookups() const { return host_lookups_; }
  /// Files of tables that are looked up on the host, each once.
  const std::vector<std::uint32_t>& host_tables() const { return host_tables_; }
  /// Files that may be cut into rows: weights of `linear` and nothing else.
  const std::vector<plan::SplittableWeight>& splittable() const { return splittable_; }
  /// Rows of the weight of the `linear` at `step`, which is splittable.
  std::int64_t linear_rows(graph::NodeId step) const;
  /// Files that with_kept_state() took from the weights that travel.
  const std::vector<std::uint32_t>& kept_state() const { return kept_state_; }
  /// Why jobs of this model cannot pass its layers together; empty where they can.
  const std::string& no_waves() const { return no_waves_; }
  /// User and constant inputs in flattened order, as indices into program().graph.inputs.
  const std::vector<std::size_t>& user_inputs() const { return user_inputs_; }
  /// User outputs in flattened order, as indices into program().graph.outputs.
  const std::vector<std::size_t>& user_outputs() const { return user_outputs_; }
  /// Is this user input written in place by the program?
  bool writes_input(graph::ValueId value) const;
  /// May this output share memory with a weight or an input?
  bool is_borrowed(graph::ValueId value) const;

  /// Dtypes are the model's. Throws InputError when there are too many shapes.
  graph::InputDescriptions describe(const InputShapes& shapes) const;

 private:
  ModelData() = default;
  void analyse();
  void pack();
  std::uint32_t weight_argument(const graph::Node& node, std::string_view name) const;
  void find_host_lookups();
  void find_splittable();
  std::string find_obstacle_to_waves() const;

  std::filesystem::path path_;
  std::uint64_t file_bytes_ = 0;
  std::int64_t modified_ns_ = 0;
  std::string fingerprint_;
  std::vector<std::string> program_names_;
  std::shared_ptr<const graph::Program> program_;
  graph::WeightTable weights_;
  std::vector<std::uint32_t> weight_of_input_;
  std::vector<std::uint32_t> file_of_input_;
  graph::StorageTable storages_;  // shapes as far as they do not depend on the inputs
  std::vector<plan::StorageUse> storage_uses_;
  plan::Packing packing_;
  std::vector<HostLookup> host_lookups_;
  std::vector<std::uint32_t> host_tables_;
  std::vector<plan::SplittableWeight> splittable_;
  std::vector<std::uint32_t> kept_state_;
  std::string no_waves_;
  std::vector<std::size_t> user_inputs_;
  std::vector<std::size_t> user_outputs_;
};

}  // namespace lowtide::detail
