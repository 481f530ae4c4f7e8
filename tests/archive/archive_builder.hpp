// Small archives for tests, made record by record, so that each can be damaged on purpose.
#pragma once

#include <caffe2/serialize/inline_container.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace lowtide::test {

inline void replace_all(std::string& text, const std::string& from, const std::string& to) {
  if (text.find(from) == std::string::npos) throw std::logic_error("nothing to replace: " + from);
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

/// A program y = relu(x + w) with a buffer, a weight that is a view, and a constant; everything well-formed.
class ArchiveBuilder {
 public:
  ArchiveBuilder() {
    set("data/weights/weight_0", std::string(64, 'w'));
    set("data/weights/model_weights_config.json", weights_config());
    set("data/constants/tensor_0", std::string(16, 'c'));
    set("data/constants/model_constants_config.json", constants_config());
    set("models/model.json", model());
    set("archive_format", "pt2");
    set("byteorder", "little");
  }

  void set(const std::string& record, std::string content) {
    for (auto& [name, old] : records_) {
      if (name == record) {
        old = std::move(content);
        return;
      }
    }
    records_.emplace_back(record, std::move(content));
  }
  void remove(const std::string& record) {
    std::erase_if(records_, [&](const auto& entry) { return entry.first == record; });
  }
  void clear() { records_.clear(); }
  /// Replaces text inside a record; the text must be there.
  void edit(const std::string& record, const std::string& from, const std::string& to) {
    for (auto& [name, content] : records_) {
      if (name == record) return replace_all(content, from, to);
    }
    throw std::logic_error("no record " + record);
  }
  void edit_model(const std::string& from, const std::string& to) { edit("models/model.json", from, to); }
  void edit_weights(const std::string& from, const std::string& to) {
    edit("data/weights/model_weights_config.json", from, to);
  }

  /// The archive as bytes; `compressed` is the record to compress.
  std::string bytes(const std::string& compressed = {}) const {
    std::string out;
    caffe2::serialize::PyTorchStreamWriter writer([&](const void* data, std::size_t size) {
      out.append(static_cast<const char*>(data), size);
      return size;
    });
    for (const auto& [name, content] : records_)
      writer.writeRecord(name, content.data(), content.size(), name == compressed);
    writer.writeEndOfFile();
    return out;
  }

  static std::string meta(const std::string& sizes, const std::string& strides, int dtype = 7,
                          const std::string& offset = "0") {
    return R"({"dtype": )" + std::to_string(dtype) + R"(, "sizes": [)" + sizes +
           R"(], "requires_grad": false, "device": {"type": "cpu", "index": null}, "strides": [)" + strides +
           R"(], "storage_offset": {"as_int": )" + offset + R"(}, "layout": 7})";
  }
  static std::string payload(const std::string& file, const std::string& tensor_meta) {
    return R"({"path_name": ")" + file + R"(", "is_param": true, "use_pickle": false, "tensor_meta": )" +
           tensor_meta + "}";
  }

  static std::string weights_config() {
    return R"({"config": {"w": )" + payload("weight_0", meta(kFour, kOne)) + R"(, "tail": )" +
           payload("weight_0", meta(kFour, kOne, 7, "12")) + "}}";
  }
  static std::string constants_config() {
    return R"({"config": {"c": )" + payload("tensor_0", meta(kFour, kOne)) + "}}";
  }

  static std::string model() {
    const std::string symbol =
        R"~({"as_expr": {"expr_str": "Symbol('s0', positive=True, integer=True)", "hint": {"as_int": 3}}})~";
    const std::string batch = meta(symbol + ", " + kFour, std::string(kFour) + ", " + kOne);
    return R"({"graph_module": {"graph": {
  "inputs": [], "outputs": [],
  "nodes": [
    {"target": "torch.ops.aten.add.Tensor",
     "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "x"}}, "kind": 1}, {"name": "other", "arg": {"as_tensor": {"name": "p_w"}}, "kind": 1}],
     "outputs": [{"as_tensor": {"name": "add"}}],
     "metadata": {"stack_trace": "File \"/home/me/model.py\", line 7, in forward\n    return relu(x + w)\nFile \"/lib/nn.py\", line 9, in add\n    a + b"},
     "is_hop_single_tensor_return": null, "name": "add"},
    {"target": "torch.ops.aten.relu.default", "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "add"}}, "kind": 1}],
     "outputs": [{"as_tensor": {"name": "relu"}}], "metadata": {}, "is_hop_single_tensor_return": null, "name": "relu"}],
  "tensor_values": {"p_w": )" +
           meta(kFour, kOne) + R"(, "c_c": )" + meta(kFour, kOne) + R"(, "x": )" + batch + R"(, "add": )" +
           batch + R"(, "relu": )" + batch + R"(},
  "sym_int_values": {}, "sym_bool_values": {}, "is_single_tensor_return": false, "custom_obj_values": {}, "sym_float_values": {}},
 "signature": {
  "input_specs": [{"parameter": {"arg": {"name": "p_w"}, "parameter_name": "w"}},
                  {"tensor_constant": {"arg": {"name": "c_c"}, "tensor_constant_name": "c"}},
                  {"user_input": {"arg": {"as_tensor": {"name": "x"}}}}],
  "output_specs": [{"user_output": {"arg": {"as_tensor": {"name": "relu"}}}}]},
 "module_call_graph": [{"fqn": "", "signature": {"inputs": [], "outputs": [],
   "in_spec": "[1, {\"type\": \"builtins.tuple\", \"context\": \"null\", \"children_spec\": [{\"type\": \"builtins.tuple\", \"context\": \"null\", \"children_spec\": [{\"type\": null, \"context\": null, \"children_spec\": []}]}, {\"type\": \"builtins.dict\", \"context\": \"[]\", \"children_spec\": []}]}]",
   "out_spec": "[1, {\"type\": null, \"context\": null, \"children_spec\": []}]",
   "forward_arg_names": ["image"]}}],
 "metadata": {}, "treespec_namedtuple_fields": {}},
 "opset_version": {"aten": 10}, "range_constraints": {"s0": {"min_val": 2, "max_val": 64}},
 "schema_version": {"major": 8, "minor": 17}, "verifiers": ["TRAINING"], "torch_version": "2.11.0", "guards_code": ["L['image'].size()[0] <= 64"]})";
  }

  static constexpr const char* kFour = R"({"as_int": 4})";
  static constexpr const char* kOne = R"({"as_int": 1})";

 private:
  std::vector<std::pair<std::string, std::string>> records_;
};

/// A file that goes away with the test.
class TempFile {
 public:
  explicit TempFile(const std::string& content, const std::string& name = "model.pt2")
      : folder_(std::filesystem::temp_directory_path() /
                ("lowtide-archive-" + std::to_string(::getpid()) + "-" + std::to_string(counter()++))),
        path_(folder_ / name) {
    std::filesystem::create_directories(folder_);
    std::ofstream(path_, std::ios::binary)
        .write(content.data(), static_cast<std::streamsize>(content.size()));
  }
  ~TempFile() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const std::filesystem::path& folder() const { return folder_; }

 private:
  static int& counter() {
    static int count = 0;
    return count;
  }
  std::filesystem::path folder_, path_;
};

/// Sets the two sizes of a record in the central directory, as a liar would.
inline void lie_about_size(std::string& bytes, const std::string& record, std::uint32_t size) {
  bool found = false;
  for (std::size_t at = bytes.find("PK\1\2"); at != std::string::npos; at = bytes.find("PK\1\2", at + 4)) {
    const std::size_t name_bytes =
        static_cast<unsigned char>(bytes[at + 28]) | static_cast<unsigned char>(bytes[at + 29]) << 8;
    if (!bytes.substr(at + 46, name_bytes).ends_with("/" + record)) continue;
    std::memcpy(&bytes[at + 20], &size, 4);
    std::memcpy(&bytes[at + 24], &size, 4);
    found = true;
  }
  if (!found) throw std::logic_error("no directory entry for " + record);
}

}  // namespace lowtide::test
