#include "graph/storages.hpp"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "base/checked_math.hpp"
#include "graph/view_rules.hpp"

namespace lowtide::graph {
namespace {

/// Bytes from the start of the storage to the last element.
std::optional<std::uint64_t> extent_bytes(const ConcreteMeta& meta) {
  const auto span = storage_span_bytes(meta);
  if (!span || *span == 0) return span;
  const auto skipped = checked_mul(static_cast<std::uint64_t>(meta.storage_offset),
                                   static_cast<std::uint64_t>(element_size(meta.dtype)));
  return skipped ? checked_add(*skipped, *span) : std::nullopt;
}

/// Groups values by shared memory (union-find), then describes each group.
class StorageAnalysis {
 public:
  StorageAnalysis(const Graph& graph, const ShapeTable& shapes, std::span<const std::uint32_t> weight_file)
      : graph_(graph), shapes_(shapes), weight_file_(weight_file), parent_(graph.values.size()) {
    std::iota(parent_.begin(), parent_.end(), ValueId{0});
    table_.of_value.assign(graph.values.size(), kNoStorage);
  }

  StorageTable run() {
    join_weights();
    for (const Node& node : graph_.nodes) join_results(node);
    describe_inputs();
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) describe_node(id, graph_.nodes[id]);
    describe_outputs();
    keep_possible_bases();
    return std::move(table_);
  }

 private:
  bool is_tensor(ValueId id) const { return graph_.values.at(id).kind == ValueKind::tensor; }

  ValueId root(ValueId id) {
    while (parent_[id] != id) id = parent_[id] = parent_[parent_[id]];
    return id;
  }

  void join(ValueId a, ValueId b) {
    if (is_tensor(a) && is_tensor(b)) parent_[root(a)] = root(b);
  }

  void join_weights() {
    std::unordered_map<std::uint32_t, ValueId> first_of_file;
    for (std::size_t i = 0; i < graph_.inputs.size() && i < weight_file_.size(); ++i) {
      if (weight_file_[i] == UINT32_MAX || graph_.inputs[i].value == kNoValue) continue;
      const auto [it, added] = first_of_file.try_emplace(weight_file_[i], graph_.inputs[i].value);
      if (!added) join(graph_.inputs[i].value, it->second);
    }
  }

  void join_results(const Node& node) {
    const std::vector<ValueId> results = node.produced();
    for (std::size_t i = 0; i < results.size() && i < node.traits.outputs.size(); ++i) {
      const AliasTraits& traits = node.traits.outputs[i];
      for (const ValueId base : traits.aliases) join(results[i], base);
      for (const ValueId base : traits.may_alias) {
        switch (decide_alias(node, meta_of(base), meta_of(results[i]))) {
          case AliasDecision::alias:
            join(results[i], base);
            break;
          case AliasDecision::either:
            possible_bases_.emplace_back(results[i], base);
            break;
          case AliasDecision::fresh:
            break;
        }
      }
    }
  }

  /// Upper bounds do not tell how the real strides relate.
  const ConcreteMeta* meta_of(ValueId id) const {
    if (id >= shapes_.metas.size() || !shapes_.metas[id]) return nullptr;
    if (id < shapes_.upper_bound.size() && shapes_.upper_bound[id]) return nullptr;
    return &*shapes_.metas[id];
  }

  /// The storage of a value, made when the first value of its group appears.
  Storage& storage_of(ValueId id, StorageOrigin origin, NodeId now) {
    const auto [it, added] = of_root_.try_emplace(root(id), static_cast<StorageId>(table_.storages.size()));
    if (added) {
      table_.storages.emplace_back();
      table_.storages.back().origin = origin;
      table_.storages.back().first = table_.storages.back().last = now;
    }
    table_.of_value[id] = it->second;
    return table_.storages[it->second];
  }

  void add_member(ValueId id, StorageOrigin origin, NodeId now) {
    if (!is_tensor(id)) return;
    Storage& storage = storage_of(id, origin, now);
    storage.values.push_back(id);
    storage.last = std::max(storage.last, now);
    const auto bytes =
        id < shapes_.metas.size() && shapes_.metas[id] ? extent_bytes(*shapes_.metas[id]) : std::nullopt;
    // A view of a known storage lies inside it; only the first member decides whether the size is known.
    if (!bytes && storage.values.size() == 1) storage.size_known = false;
    if (bytes) storage.bytes = std::max(storage.bytes, *bytes);
    if (!storage.size_known) storage.bytes = 0;
  }

  Storage* existing(ValueId id) {
    if (table_.of_value[id] == kNoStorage) return nullptr;
    return &table_.storages[table_.of_value[id]];
  }

  void describe_inputs() {
    for (const GraphInput& input : graph_.inputs) {
      if (input.value == kNoValue) continue;
      add_member(input.value,
                 input.kind == InputKind::user ? StorageOrigin::user_input : StorageOrigin::weight, 0);
    }
  }

  void describe_node(NodeId id, const Node& node) {
    for (const ValueId value : node.read_values()) use(value, id);
    for (const ValueId value : node.produced()) add_member(value, StorageOrigin::produced, id);
    for (const ValueId value : node.traits.writes) {
      if (Storage* storage = existing(value)) storage->written = true;
    }
  }

  void use(ValueId value, NodeId now) {
    Storage* storage = existing(value);
    if (storage == nullptr) return;
    storage->used = true;
    storage->last = std::max(storage->last, now);
  }

  void describe_outputs() {
    const auto end = static_cast<NodeId>(graph_.nodes.size());
    for (const GraphOutput& output : graph_.outputs) {
      std::vector<ValueId> values;
      append_read_values(output.value, values);
      for (const ValueId value : values) {
        use(value, end);
        if (Storage* storage = existing(value)) storage->is_output = true;
      }
    }
  }

  /// Where a result may or may not share its base's memory, the base lives as long as the result, and writes
  /// to one count as writes to the other. Repeated until nothing changes, since results can be bases again.
  void keep_possible_bases() {
    for (bool changed = true; std::exchange(changed, false);) {
      for (const auto& [result_value, base_value] : possible_bases_) {
        Storage* result = existing(result_value);
        Storage* base = existing(base_value);
        if (result == nullptr || base == nullptr || result == base) continue;
        const bool written = result->written || base->written;
        if (base->last < result->last || base->written != written || result->written != written)
          changed = true;
        base->last = std::max(base->last, result->last);
        base->written = result->written = written;
      }
    }
  }

  const Graph& graph_;
  const ShapeTable& shapes_;
  std::span<const std::uint32_t> weight_file_;
  std::vector<ValueId> parent_;
  std::unordered_map<ValueId, StorageId> of_root_;
  std::vector<std::pair<ValueId, ValueId>> possible_bases_;  // result, base
  StorageTable table_;
};

}  // namespace

std::optional<std::uint64_t> storage_span_bytes(const ConcreteMeta& meta) {
  if (std::find(meta.sizes.begin(), meta.sizes.end(), 0) != meta.sizes.end()) return 0;
  if (meta.strides.size() != meta.sizes.size()) return std::nullopt;
  std::uint64_t elements = 1;
  for (std::size_t i = 0; i < meta.sizes.size(); ++i) {
    if (meta.sizes[i] < 0 || meta.strides[i] < 0) return std::nullopt;
    const auto reach = checked_mul(static_cast<std::uint64_t>(meta.sizes[i] - 1),
                                   static_cast<std::uint64_t>(meta.strides[i]));
    const auto sum = reach ? checked_add(elements, *reach) : std::nullopt;
    if (!sum) return std::nullopt;
    elements = *sum;
  }
  return checked_mul(elements, static_cast<std::uint64_t>(element_size(meta.dtype)));
}

StorageTable analyse_storages(const Graph& graph, const ShapeTable& shapes,
                              std::span<const std::uint32_t> weight_file) {
  return StorageAnalysis(graph, shapes, weight_file).run();
}

}  // namespace lowtide::graph
