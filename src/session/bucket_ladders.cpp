#include "session/bucket_ladders.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "graph/batch_independence.hpp"
#include "graph/guard_check.hpp"
#include "graph/quote.hpp"
#include "lowtide/error.hpp"

namespace lowtide::detail {
namespace {

using graph::SymbolId;

constexpr std::size_t kMostBuckets = 64;
constexpr std::int64_t kLargestBucket = INT32_MAX;
/// A session keeps so many plans of a model.
constexpr std::size_t kMostShapes = 256;
/// A recorded minimum of 2 says that 0 and 1 were not looked at.
constexpr std::int64_t kNoMinimum = 2;

[[noreturn]] void refuse(const std::string& name, const std::string& reason) {
  throw UsageError("--shape-buckets " + name + ": " + reason);
}

std::string text_of(const ShapeBuckets& buckets) {
  return buckets.input + "." + std::to_string(buckets.dim);
}

bool contains(const graph::SymExpr& size, SymbolId symbol) {
  const std::vector<SymbolId> symbols = size.symbols();
  return std::find(symbols.begin(), symbols.end(), symbol) != symbols.end();
}

/// One option against the model.
class LadderMaker {
 public:
  LadderMaker(const ModelData& model, const ShapeBuckets& buckets)
      : program_(model.program()), model_(model), buckets_(buckets), name_(text_of(buckets)) {}

  BucketLadder make() {
    check_sizes();
    position_ = find_input();
    ladder_.name = name_;
    ladder_.sizes = buckets_.sizes;
    ladder_.symbol = find_symbol();
    ladder_.declared = buckets_.pad.has_value();
    check_range();
    check_guards();
    check_numbers();
    if (buckets_.pad) {
      ladder_.pads[position_] = pad_value();
      cut_equal_sizes();
    } else {
      follow_batch();
    }
    return std::move(ladder_);
  }

 private:
  void check_sizes() const {
    if (buckets_.sizes.empty()) refuse(name_, "no sizes are given: write --shape-buckets NAME.DIM=1,4,8,16");
    if (buckets_.sizes.size() > kMostBuckets)
      refuse(name_,
             "more than " + std::to_string(kMostBuckets) + " sizes are given: each is a plan of its own");
    std::int64_t before = 0;
    for (const std::int64_t size : buckets_.sizes) {
      if (size < 1 || size > kLargestBucket)
        refuse(name_, "a size of " + std::to_string(size) + " is not between 1 and " +
                          std::to_string(kLargestBucket));
      if (size <= before)
        refuse(name_, std::to_string(size) + " comes after " + std::to_string(before) +
                          ": give each size once, the smallest first");
      before = size;
    }
  }

  std::size_t find_input() const {
    const auto& names = program_.user_input_names;
    const auto found = std::find(names.begin(), names.end(), buckets_.input);
    if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
    std::size_t position = 0;
    const char* const end = buckets_.input.data() + buckets_.input.size();
    const auto [stop, status] = std::from_chars(buckets_.input.data(), end, position);
    if (status == std::errc() && stop == end && position < model_.user_inputs().size()) return position;
    std::string known;
    for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name;
    refuse(name_, "the model has no input " + graph::in_quotes(buckets_.input) + ", only " + known);
  }

  const graph::GraphInput& input(std::size_t position) const {
    return program_.graph.inputs[model_.user_inputs()[position]];
  }

  SymbolId find_symbol() const {
    const graph::GraphInput& given = input(position_);
    if (given.kind == graph::InputKind::constant || given.value == graph::kNoValue ||
        program_.graph.values[given.value].kind != graph::ValueKind::tensor)
      refuse(name_, "the input is no tensor");
    const auto& sizes = program_.graph.values[given.value].meta.sizes;
    if (buckets_.dim >= sizes.size())
      refuse(name_, "the input has " + std::to_string(sizes.size()) + " dimensions, counted from 0");
    const graph::SymExpr& size = sizes[buckets_.dim];
    if (size.is_constant())
      refuse(name_, "this dimension was fixed as " + std::to_string(size.constant()) +
                        " when the model was exported: export it with a dynamic one");
    const auto symbol = size.as_symbol();
    if (!symbol)
      refuse(name_, "this dimension is " + size.to_string(program_.symbols) +
                        ": give buckets for an input that has the size itself");
    return *symbol;
  }

  void check_range() const {
    const auto found = program_.ranges.find(ladder_.symbol);
    if (found == program_.ranges.end()) return;
    const auto [min, max] = found->second;
    const bool has_min = min && *min > kNoMinimum;
    const std::string range =
        "the model was exported for " + (has_min ? "sizes from " + std::to_string(*min) : "") +
        (has_min && max ? " " : "") + (max ? "sizes up to " + std::to_string(*max) : "");
    for (const std::int64_t size : ladder_.sizes) {
      if ((has_min && size < *min) || (max && size > *max))
        refuse(name_, range + ", which leaves out " + std::to_string(size));
    }
  }

  /// Jobs of a size that the export does not allow would all fail, and of a size that nobody passed.
  void check_guards() const {
    for (const std::int64_t size : ladder_.sizes) {
      if (const auto refusal = graph::find_refusal(program_, {position_, buckets_.dim}, size))
        refuse(name_, "the bucket " + std::to_string(size) + " cannot be used: " + *refusal);
    }
  }

  /// An input that is a number cannot be padded.
  void check_numbers() const {
    for (std::size_t i = 0; i < model_.user_inputs().size(); ++i) {
      const graph::GraphInput& other = input(i);
      if (other.kind != graph::InputKind::user || other.value == graph::kNoValue) continue;
      const graph::Value& value = program_.graph.values[other.value];
      if (value.kind == graph::ValueKind::sym_int && contains(value.expr, ladder_.symbol))
        refuse(name_, "the input " + graph::in_quotes(program_.user_input_names.at(i)) +
                          " is a number that must agree with this size");
    }
  }

  double pad_value() const {
    const double pad = *buckets_.pad;
    const graph::DType dtype = program_.graph.values[input(position_).value].meta.dtype;
    const auto [low, high] = range_of(dtype);
    if (std::isnan(pad)) refuse(name_, "pad is no number");
    if (low == high) return pad;
    if (pad != std::floor(pad) || pad < low || pad > high)
      refuse(name_, "pad does not fit the input, which is " + std::string(graph::dtype_name(dtype)));
    return pad;
  }

  /// What whole numbers fit; equal where any number does.
  static std::pair<double, double> range_of(graph::DType dtype) {
    constexpr double kExact = 9007199254740992;  // 2^53: beyond it a double leaves numbers out
    switch (dtype) {
      case graph::DType::boolean:
        return {0, 1};
      case graph::DType::u8:
        return {0, UINT8_MAX};
      case graph::DType::i8:
        return {INT8_MIN, INT8_MAX};
      case graph::DType::i16:
        return {INT16_MIN, INT16_MAX};
      case graph::DType::u16:
        return {0, UINT16_MAX};
      case graph::DType::i32:
        return {INT32_MIN, INT32_MAX};
      case graph::DType::i64:
        return {-kExact, kExact};
      default:
        return {0, 0};
    }
  }

  void cut_equal_sizes() {
    for (const std::size_t output : model_.user_outputs()) {
      std::vector<std::size_t>& dims = ladder_.cuts.emplace_back();
      const auto* ref = std::get_if<graph::Ref>(&program_.graph.outputs[output].value);
      if (ref == nullptr) continue;
      const auto& sizes = program_.graph.values[ref->value].meta.sizes;
      for (std::size_t d = 0; d < sizes.size(); ++d) {
        if (sizes[d].as_symbol() == ladder_.symbol) dims.push_back(d);
      }
    }
  }

  void follow_batch() {
    const graph::BatchIndependence batch = graph::find_batch_independence(program_, ladder_.symbol);
    if (!batch.independent())
      refuse(name_, "this dimension is no batch: " + batch.obstacle +
                        "; if the model accepts padding there, say with what: NAME.DIM=SIZES:pad=VALUE");
    for (const std::size_t output : model_.user_outputs()) {
      std::vector<std::size_t>& dims = ladder_.cuts.emplace_back();
      if (batch.output_dims[output]) dims.push_back(*batch.output_dims[output]);
    }
  }

  const graph::Program& program_;
  const ModelData& model_;
  const ShapeBuckets& buckets_;
  std::string name_;
  std::size_t position_ = 0;
  BucketLadder ladder_;
};

/// Adds a ladder; a second one of the same dimension may say what another input is padded with.
void add_ladder(std::vector<BucketLadder>& ladders, BucketLadder ladder) {
  for (BucketLadder& other : ladders) {
    if (other.symbol != ladder.symbol) continue;
    const std::size_t input = ladder.pads.empty() ? 0 : ladder.pads.begin()->first;
    if (!ladder.declared || !other.declared || other.pads.count(input) > 0)
      refuse(ladder.name, "this dimension has the buckets of " + other.name + ": leave one of them out");
    if (other.sizes != ladder.sizes)
      refuse(ladder.name, "this dimension is that of " + other.name + ": give both the same sizes");
    other.pads.insert(ladder.pads.begin(), ladder.pads.end());
    return;
  }
  ladders.push_back(std::move(ladder));
}

}  // namespace

graph::SymbolValues BucketLadders::round_up(graph::SymbolValues symbols) const {
  for (const BucketLadder& ladder : ladders_) {
    std::optional<std::int64_t>& size = symbols.at(ladder.symbol);
    const auto bucket = std::lower_bound(ladder.sizes.begin(), ladder.sizes.end(), size.value_or(0));
    if (bucket == ladder.sizes.end())
      throw InputError("a size of " + std::to_string(*size) + " at " + ladder.name +
                       " is above the largest bucket, " + std::to_string(ladder.sizes.back()) +
                       ": add a larger one to --shape-buckets, or cut the input");
    size = *bucket;
  }
  return symbols;
}

graph::InputDescriptions BucketLadders::resized(graph::InputDescriptions inputs,
                                                const graph::SymbolValues& symbols) const {
  const graph::Graph& graph = model_.program().graph;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const graph::GraphInput& input = graph.inputs[model_.user_inputs()[i]];
    if (!inputs[i] || input.kind != graph::InputKind::user || input.value == graph::kNoValue) continue;
    const auto& recorded = graph.values[input.value].meta.sizes;
    for (std::size_t d = 0; d < recorded.size() && d < inputs[i]->sizes.size(); ++d) {
      if (ladder_of(recorded[d]) == nullptr) continue;
      const auto size = recorded[d].evaluate(symbols);
      if (!size || *size < inputs[i]->sizes[d])
        throw InputError("dimension " + std::to_string(d) + " of input " +
                         graph::in_quotes(model_.program().user_input_names.at(i)) +
                         " cannot be padded to its bucket: leave --shape-buckets out");
      inputs[i]->sizes[d] = *size;
    }
  }
  return inputs;
}

graph::InputDescriptions BucketLadders::padded(const graph::InputDescriptions& inputs) const {
  return resized(inputs, round_up(graph::bind_inputs(model_.program(), inputs)));
}

std::vector<graph::InputDescriptions> BucketLadders::all_shapes(const graph::InputDescriptions& like) const {
  std::vector<graph::SymbolValues> choices{graph::bind_inputs(model_.program(), like)};
  for (const BucketLadder& ladder : ladders_) {
    if (choices.size() * ladder.sizes.size() > kMostShapes)
      throw UsageError("--shape-buckets " + ladder.name + ": all sizes together make more than " +
                       std::to_string(kMostShapes) + " shapes: give fewer");
    std::vector<graph::SymbolValues> more;
    for (const graph::SymbolValues& choice : choices) {
      for (const std::int64_t size : ladder.sizes) {
        more.push_back(choice);
        more.back().at(ladder.symbol) = size;
      }
    }
    choices = std::move(more);
  }
  graph::InputDescriptions smallest = like;  // from which every bucket is a way up
  const graph::Graph& graph = model_.program().graph;
  for (std::size_t i = 0; i < smallest.size(); ++i) {
    const graph::GraphInput& input = graph.inputs[model_.user_inputs()[i]];
    if (!smallest[i] || input.kind != graph::InputKind::user || input.value == graph::kNoValue) continue;
    const auto& recorded = graph.values[input.value].meta.sizes;
    for (std::size_t d = 0; d < recorded.size() && d < smallest[i]->sizes.size(); ++d)
      if (ladder_of(recorded[d]) != nullptr) smallest[i]->sizes[d] = 0;
  }
  std::vector<graph::InputDescriptions> shapes;
  for (const graph::SymbolValues& choice : choices) shapes.push_back(resized(smallest, choice));
  return shapes;
}

const BucketLadder* BucketLadders::ladder_of(const graph::SymExpr& size) const {
  for (const BucketLadder& ladder : ladders_) {
    if (contains(size, ladder.symbol)) return &ladder;
  }
  return nullptr;
}

std::shared_ptr<const BucketLadders> make_ladders(const ModelData& model,
                                                  const std::vector<ShapeBuckets>& buckets) {
  if (buckets.empty()) return nullptr;
  std::vector<BucketLadder> ladders;
  for (const ShapeBuckets& one : buckets) add_ladder(ladders, LadderMaker(model, one).make());
  for (const std::size_t index : model.user_inputs()) {
    const graph::GraphInput& input = model.program().graph.inputs[index];
    if (input.kind != graph::InputKind::user || input.value == graph::kNoValue) continue;
    for (const graph::SymExpr& size : model.program().graph.values[input.value].meta.sizes) {
      const auto holds = [&](const BucketLadder& ladder) { return contains(size, ladder.symbol); };
      if (std::count_if(ladders.begin(), ladders.end(), holds) > 1)
        refuse(ladders.back().name, "an input has the size " + size.to_string(model.program().symbols) +
                                        ", which two buckets would pad: leave one of them out");
    }
  }
  return std::make_shared<const BucketLadders>(model, std::move(ladders));
}

}  // namespace lowtide::detail
