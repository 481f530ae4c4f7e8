#include "archive/weight_config.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/checked_math.hpp"
#include "graph/quote.hpp"
#include "graph/storages.hpp"

namespace lowtide::archive {

using graph::in_quotes;

namespace {

constexpr std::int64_t kStrided = 7;  // Layout of the export schema

std::vector<std::int64_t> plain_sizes(Json list) {
  std::vector<std::int64_t> numbers;
  numbers.reserve(list.size());
  for (const Json item : list.elements()) {
    const std::int64_t number = item.at("as_int").integer();
    if (number < 0) item.fail("a negative number: " + std::to_string(number));
    numbers.push_back(number);
  }
  return numbers;
}

graph::ConcreteMeta read_meta(Json json) {
  graph::ConcreteMeta meta;
  const auto dtype = graph::dtype_from_schema(json.at("dtype").integer());
  if (!dtype || *dtype == graph::DType::unknown) json.at("dtype").fail("unknown element type");
  if (json.at("layout").integer() != kStrided)
    json.at("layout").fail("only dense (strided) weights are supported");
  meta.dtype = *dtype;
  meta.sizes = plain_sizes(json.at("sizes"));
  meta.strides = plain_sizes(json.at("strides"));
  if (meta.sizes.size() != meta.strides.size()) json.fail("sizes and strides differ in number");
  meta.storage_offset = json.at("storage_offset").at("as_int").integer();
  if (meta.storage_offset < 0) json.at("storage_offset").fail("a negative number");
  return meta;
}

/// Bytes of the storage that the tensor needs; nothing when numbers leave 64 bit.
std::optional<std::uint64_t> bytes_needed(const graph::ConcreteMeta& meta) {
  std::optional<std::int64_t> count = graph::element_size(meta.dtype);
  if (std::find(meta.sizes.begin(), meta.sizes.end(), 0) != meta.sizes.end()) return 0;
  for (const std::int64_t size : meta.sizes) {
    if (count) count = checked_mul(*count, size);
  }
  if (!count) return std::nullopt;
  const auto span = graph::storage_span_bytes(meta);
  const auto skipped = checked_mul(static_cast<std::uint64_t>(meta.storage_offset),
                                   static_cast<std::uint64_t>(graph::element_size(meta.dtype)));
  return span && skipped ? checked_add(*span, *skipped) : std::nullopt;
}

class TableReader {
 public:
  explicit TableReader(const RecordReader& reader) : reader_(reader) {}

  void read(const std::string& record, const std::string& json, const std::string& folder,
            std::unordered_map<std::string, std::uint32_t>& index) {
    const JsonTree tree(json, record);
    for (const Json entry : tree.root().at("config").members()) {
      if (entry.at("use_pickle").boolean()) {
        entry.fail(
            "is a pickled object, which is never loaded; export the model without custom objects and tensor "
            "subclasses");
      }
      graph::Weight weight;
      weight.name = entry.key();
      weight.meta = read_meta(entry.at("tensor_meta"));
      weight.file = file(entry.at("path_name"), folder);
      check_view(entry, weight);
      index.emplace(weight.name, static_cast<std::uint32_t>(table_.weights.size()));
      table_.weights.push_back(std::move(weight));
    }
  }

  graph::WeightTable finish() {
    check_overlaps();
    return std::move(table_);
  }

  graph::WeightTable& table() { return table_; }

 private:
  std::uint32_t file(Json path, const std::string& folder) {
    const std::string name(path.string());
    if (name.empty() || name.find('/') != std::string::npos || name.find('\\') != std::string::npos) {
      path.fail("no plain file name: " + in_quotes(name));
    }
    const std::string record = folder + name;
    const auto [it, added] = by_record_.try_emplace(record, static_cast<std::uint32_t>(table_.files.size()));
    if (added) table_.files.push_back({record, reader_.offset(record), reader_.size(record)});
    return it->second;
  }

  void check_view(Json entry, const graph::Weight& weight) const {
    const graph::WeightFile& file = table_.files[weight.file];
    const auto needed = bytes_needed(weight.meta);
    if (!needed) entry.fail("the size of the tensor is beyond 64 bit");
    if (*needed > file.bytes) {
      entry.fail("the tensor needs " + std::to_string(*needed) + " bytes of record " +
                 in_quotes(file.record) + ", which has " + std::to_string(file.bytes));
    }
    if (*needed > 0 && file.offset % graph::element_size(weight.meta.dtype) != 0) {
      entry.fail("record " + in_quotes(file.record) + " is not aligned to its elements");
    }
  }

  /// Two records that share bytes: the directory lies about a size.
  void check_overlaps() const {
    std::vector<const graph::WeightFile*> files;
    for (const graph::WeightFile& file : table_.files) {
      if (file.bytes > 0) files.push_back(&file);
    }
    std::sort(files.begin(), files.end(), [](const auto* a, const auto* b) { return a->offset < b->offset; });
    for (std::size_t i = 1; i < files.size(); ++i) {
      if (files[i]->offset - files[i - 1]->offset < files[i - 1]->bytes) {
        reader_.fail("records " + in_quotes(files[i - 1]->record) + " and " + in_quotes(files[i]->record) +
                     " overlap");
      }
    }
  }

  const RecordReader& reader_;
  graph::WeightTable table_;
  std::unordered_map<std::string, std::uint32_t> by_record_;
};

}  // namespace

graph::WeightTable read_weight_table(const RecordReader& reader, const std::string& weights_record,
                                     const std::string& weights_json, const std::string& constants_record,
                                     const std::string& constants_json) {
  TableReader table(reader);
  table.read(weights_record, weights_json, "data/weights/", table.table().parameters_and_buffers);
  table.read(constants_record, constants_json, "data/constants/", table.table().constants);
  return table.finish();
}

}  // namespace lowtide::archive
