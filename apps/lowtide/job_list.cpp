#include "job_list.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "lowtide/error.hpp"
#include "output_files.hpp"
#include "tensor_file/file_error.hpp"

namespace lowtide::app {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using tensor_file::printable;

constexpr std::size_t kLongestLine = 16 * 1024 * 1024;
constexpr std::array<std::string_view, 4> kKeys{"id", "model", "inputs", "output"};
constexpr const char* kExample =
    R"(write {"id": "p1", "model": "m.pt2", "inputs": "a.safetensors", "output": "a.safetensors"})";

/// What is wrong with a line. Never leaves this file.
class LineError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

json parse_json(const std::string& text) {
  constexpr int kDeepest = 2;
  std::unordered_set<std::string> keys;
  std::unordered_set<std::string> input_names;
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > kDeepest) throw LineError(std::string("the line is nested too deep; ") + kExample);
    if (event != json::parse_event_t::key) return true;
    const auto& key = parsed.get_ref<const std::string&>();
    if (!(depth == 1 ? keys : input_names).insert(key).second) {
      throw LineError("'" + printable(key) + "' is given twice; keep one");
    }
    return true;
  };
  try {
    return json::parse(text, watch);
  } catch (const json::parse_error& error) {
    throw LineError("the line is no JSON (column " + std::to_string(error.byte) + "); " + kExample);
  } catch (const json::exception&) {
    throw LineError(std::string("the line is no JSON; ") + kExample);
  }
}

std::string text_field(const json& value, const std::string& name) {
  if (!value.is_string()) throw LineError("'" + printable(name) + "' is no text; put it in quotes");
  auto text = value.get<std::string>();
  if (text.empty()) throw LineError("'" + printable(name) + "' is empty; fill it in");
  if (text.find('\0') != std::string::npos)
    throw LineError("'" + printable(name) + "' contains a zero byte; remove it");
  return text;
}

const json& required(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) throw LineError(std::string("'") + key + "' is missing; " + kExample);
  return *found;
}

JobInputs parse_inputs(const json& value, const fs::path& folder) {
  if (value.is_string()) return folder / text_field(value, "inputs");
  if (!value.is_object())
    throw LineError("'inputs' is neither a file name nor an object from input names to file names; " +
                    std::string(kExample));
  std::map<std::string, fs::path> files;
  for (const auto& [name, file] : value.items())
    files.emplace(name, folder / text_field(file, "inputs." + name));
  return files;
}

JobSpec parse_job(const std::string& text, const fs::path& folder, bool needs_model) {
  const json object = parse_json(text);
  if (!object.is_object()) throw LineError(std::string("the line is no JSON object; ") + kExample);
  for (const auto& [key, value] : object.items()) {
    if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end()) {
      throw LineError("unknown key '" + printable(key) + "'; the keys are id, model, inputs, output");
    }
  }
  JobSpec job;
  job.id = text_field(required(object, "id"), "id");
  if (object.contains("model")) job.model = text_field(object["model"], "model");
  if (!job.model && needs_model)
    throw LineError("'model' is missing; name it in the line or on the command line");
  job.inputs = parse_inputs(required(object, "inputs"), folder);
  const fs::path output = text_field(required(object, "output"), "output");
  const std::string problem = output_path_problem(output);
  if (!problem.empty()) throw LineError("'output' " + problem + "; give a file name below the output folder");
  job.output = output.lexically_normal();
  return job;
}

bool is_blank(const std::string& text) {
  return text.find_first_not_of(" \t\r") == std::string::npos;
}

}  // namespace

JobLineReader::JobLineReader(std::istream& stream, fs::path folder, bool needs_model)
    : stream_(stream), folder_(std::move(folder)), needs_model_(needs_model) {}

JobLineReader::Line JobLineReader::read_line() {
  text_.clear();
  std::streambuf* buffer = stream_.rdbuf();
  bool too_long = false;
  while (true) {
    const int c = buffer->sbumpc();
    if (c == std::char_traits<char>::eof()) {
      if (text_.empty() && !too_long) return Line::end;
      break;
    }
    if (c == '\n') break;
    if (text_.size() == kLongestLine) too_long = true;  // the rest is skipped, not kept
    if (!too_long) text_ += static_cast<char>(c);
  }
  ++line_;
  return too_long ? Line::too_long : Line::complete;
}

std::variant<JobSpec, std::string> JobLineReader::parse() const {
  try {
    return parse_job(text_, folder_, needs_model_);
  } catch (const LineError& error) {
    return std::string(error.what());
  }
}

std::optional<JobLine> JobLineReader::next() {
  while (true) {
    switch (read_line()) {
      case Line::end:
        return std::nullopt;
      case Line::too_long:
        return JobLine{line_, "the line is longer than 16 MiB; write one job a line"};
      case Line::complete:
        break;
    }
    if (!is_blank(text_)) return JobLine{line_, parse()};
  }
}

std::optional<std::string> OutputClaims::claim(const JobSpec& job, std::size_t line) {
  const auto output = outputs_.find(job.output.string());
  if (output != outputs_.end()) {
    return "output '" + printable(job.output.string()) + "' is already written by line " +
           std::to_string(output->second) + "; give it another name";
  }
  const auto id = ids_.find(job.id);
  if (id != ids_.end()) {
    return "id '" + printable(job.id) + "' is already used in line " + std::to_string(id->second) +
           "; give it another";
  }
  outputs_.emplace(job.output.string(), line);
  ids_.emplace(job.id, line);
  return std::nullopt;
}

}  // namespace lowtide::app
