#include "archive/pt2_archive.hpp"

#include <algorithm>
#include <optional>

#include "archive/exported_program.hpp"
#include "archive/look_alike.hpp"
#include "archive/record_reader.hpp"
#include "archive/weight_config.hpp"
#include "base/sha256.hpp"
#include "graph/graph_text.hpp"
#include "graph/quote.hpp"
#include "lowtide/error.hpp"

namespace lowtide::archive {

using graph::in_quotes;

namespace {

/// Opens the zip. When that fails, says what the file is instead, where that can be told.
RecordReader open_records(const std::filesystem::path& path) {
  if (const auto what = look_alike_by_content(path))
    throw ArchiveError(in_quotes(path.string()) + ": " + *what);
  try {
    return RecordReader(path);
  } catch (const ArchiveError&) {
    if (const auto what = look_alike_by_first_entry(path))
      throw ArchiveError(in_quotes(path.string()) + ": " + *what);
    throw;
  }
}

std::vector<std::string> find_programs(const std::vector<std::string>& records) {
  static constexpr std::string_view kFolder = "models/", kSuffix = ".json";
  std::vector<std::string> names;
  for (const std::string& record : records) {
    if (!record.starts_with(kFolder) || !record.ends_with(kSuffix)) continue;
    if (record.size() > kFolder.size() + kSuffix.size()) {
      names.push_back(record.substr(kFolder.size(), record.size() - kFolder.size() - kSuffix.size()));
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string choose_program(const RecordReader& reader, const std::vector<std::string>& names,
                           const std::string& wanted) {
  if (names.empty()) reader.fail(look_alike_by_records(reader.names()));
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + in_quotes(name);
  if (wanted.empty()) {
    if (names.size() == 1) return names[0];
    throw UsageError("the archive holds several programs, choose one of " + list);
  }
  if (std::find(names.begin(), names.end(), wanted) == names.end()) {
    throw UsageError("the archive has no program " + in_quotes(wanted) + "; it has " + list);
  }
  return wanted;
}

void check_format(const RecordReader& reader) {
  if (reader.has("archive_format") && reader.read("archive_format") != "pt2") {
    reader.fail("record 'archive_format' is not 'pt2'");
  }
  if (reader.has("byteorder") && reader.read("byteorder") != "little") {
    reader.fail("was saved on a big-endian machine, which is not supported");
  }
}

/// The weights themselves are too large to be hashed at every start; their names and sizes are.
std::string fingerprint(const RecordReader& reader, const std::string& model, const std::string& weights,
                        const std::string& constants) {
  Sha256 hash;
  for (const std::string* text : {&model, &weights, &constants}) {
    hash.update(std::to_string(text->size()) + "\n");
    hash.update(*text);
  }
  for (const std::string& name : reader.names()) {
    if (name.starts_with("data/weights/") || name.starts_with("data/constants/")) {
      hash.update(name + "\n" + std::to_string(reader.size(name)) + "\n");
    }
  }
  return hash.hex();
}

}  // namespace

Pt2Archive read_pt2(const std::filesystem::path& path, const std::string& program_name) {
  const RecordReader reader = open_records(path);
  Pt2Archive archive;
  archive.path = path;
  archive.file_bytes = reader.file_bytes();
  archive.modified_ns = reader.modified_ns();
  archive.program_names = find_programs(reader.names());
  const std::string name = choose_program(reader, archive.program_names, program_name);
  check_format(reader);

  const std::string model_record = "models/" + name + ".json";
  const std::string weights_record = "data/weights/" + name + "_weights_config.json";
  const std::string constants_record = "data/constants/" + name + "_constants_config.json";
  const std::string model = reader.read(model_record);
  const std::string weights = reader.read(weights_record);
  const std::string constants = reader.read(constants_record);
  try {
    archive.program = read_program(JsonTree(model, model_record).root(), name);
    graph::verify(archive.program.graph);
    archive.weights = read_weight_table(reader, weights_record, weights, constants_record, constants);
    archive.weights.resolve(archive.program.graph);
  } catch (const ArchiveError& error) {
    const std::string prefix = in_quotes(path.string()) + ": ";
    if (std::string_view(error.what()).starts_with(prefix)) throw;
    throw ArchiveError(prefix + error.what());
  }
  archive.fingerprint = fingerprint(reader, model, weights, constants);
  return archive;
}

}  // namespace lowtide::archive
