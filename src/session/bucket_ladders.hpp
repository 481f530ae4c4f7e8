// Buckets of one model, checked against its graph: which sizes of a job become which. Arithmetic only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "graph/input_binding.hpp"
#include "lowtide/options.hpp"
#include "session/model_data.hpp"

namespace lowtide::detail {

/// The buckets of one symbol of the export, that is, of a dimension and all that share it.
struct BucketLadder {
  graph::SymbolId symbol = 0;
  std::string name;  // "ids.0", as the caller wrote it
  std::vector<std::int64_t> sizes;
  /// The caller's word that it may be padded; else the graph shows that it is a batch.
  bool declared = false;
  std::map<std::size_t, double> pads;  // declared: what other values than 0 user inputs are padded with
  /// Per user output: the dimensions that are cut back.
  std::vector<std::vector<std::size_t>> cuts;
};

class BucketLadders {
 public:
  BucketLadders(const ModelData& model, std::vector<BucketLadder> ladders)
      : model_(model), ladders_(std::move(ladders)) {}

  const std::vector<BucketLadder>& ladders() const { return ladders_; }
  const ModelData& model() const { return model_; }

  /// What the symbols are where these run: each bucketed one rounded up. `symbols` are of the job as it came.
  /// Throws InputError where no bucket is large enough.
  graph::SymbolValues round_up(graph::SymbolValues symbols) const;
  /// The same inputs with sizes of these symbols.
  graph::InputDescriptions resized(graph::InputDescriptions inputs, const graph::SymbolValues& symbols) const;
  /// Shapes at which inputs of these shapes run. Throws InputError for inputs that the model does not take,
  /// or that no bucket holds.
  graph::InputDescriptions padded(const graph::InputDescriptions& inputs) const;
  /// All shapes at which inputs like these can run. Throws InputError; UsageError where there are too many.
  std::vector<graph::InputDescriptions> all_shapes(const graph::InputDescriptions& like) const;
  /// The ladder of a size; null where it has none.
  const BucketLadder* ladder_of(const graph::SymExpr& size) const;

 private:
  const ModelData& model_;
  std::vector<BucketLadder> ladders_;
};

/// Null without buckets. Throws UsageError for names and dimensions that the model does not have, sizes that
/// are fixed, out of range or out of order, and dimensions that are no batch and not declared to be padable.
/// `model` must outlive the result.
std::shared_ptr<const BucketLadders> make_ladders(const ModelData& model,
                                                  const std::vector<ShapeBuckets>& buckets);

}  // namespace lowtide::detail
