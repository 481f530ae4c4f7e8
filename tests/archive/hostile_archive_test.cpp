#include <doctest/doctest.h>
#include <sys/stat.h>

#include "archive/archive_builder.hpp"
#include "archive/pt2_archive.hpp"
#include "lowtide/error.hpp"

using namespace lowtide;
using namespace lowtide::archive;
using namespace lowtide::test;

namespace {

/// The message of the ArchiveError that reading the file gives; empty when it can be read. Messages are one
/// line.
std::string error_of_file(const std::filesystem::path& path) {
  try {
    read_pt2(path);
  } catch (const ArchiveError& error) {
    const std::string message = error.what();
    CHECK(message.find('\n') == std::string::npos);
    CHECK(message.find(path.filename().string()) != std::string::npos);
    return message;
  }
  return {};
}

std::string error_of_bytes(const std::string& bytes, const std::string& name = "model.pt2") {
  return error_of_file(TempFile(bytes, name).path());
}
std::string error_of(const ArchiveBuilder& builder) {
  return error_of_bytes(builder.bytes());
}

bool says(const std::string& message, const std::string& part) {
  INFO(message);
  const bool found = message.find(part) != std::string::npos;
  CHECK(found);
  return found;
}

std::string error_of_model(const std::string& from, const std::string& to) {
  ArchiveBuilder builder;
  builder.edit_model(from, to);
  return error_of(builder);
}

std::string error_of_weights(const std::string& from, const std::string& to) {
  ArchiveBuilder builder;
  builder.edit_weights(from, to);
  return error_of(builder);
}

}  // namespace

TEST_CASE("the unharmed archive of these tests can be read") {
  CHECK(error_of(ArchiveBuilder()) == "");
}

TEST_CASE("an archive cut off anywhere is an error") {
  const std::string bytes = ArchiveBuilder().bytes();
  for (std::size_t percent = 0; percent < 100; percent += 7) {
    CAPTURE(percent);
    CHECK(error_of_bytes(bytes.substr(0, bytes.size() * percent / 100)) != "");
  }
  CHECK(error_of_bytes(bytes.substr(0, bytes.size() - 1)) != "");
}

TEST_CASE("each record that is needed is missed") {
  for (const char* record :
       {"models/model.json", "data/weights/model_weights_config.json",
        "data/constants/model_constants_config.json", "data/weights/weight_0", "data/constants/tensor_0"}) {
    CAPTURE(record);
    ArchiveBuilder builder;
    builder.remove(record);
    const std::string message = error_of(builder);
    says(message, std::string(record) == "models/model.json" ? "has no exported program" : "is missing");
  }
}

TEST_CASE("a record whose directory entry lies about its size is an error") {
  for (const std::uint32_t size : {0U, 4U, 63U, 1000000U, 0xFFFFFFFEU}) {
    CAPTURE(size);
    std::string bytes = ArchiveBuilder().bytes();
    lie_about_size(bytes, "data/weights/weight_0", size);
    CHECK(error_of_bytes(bytes) != "");
  }
  std::string overlapping = ArchiveBuilder().bytes();
  lie_about_size(overlapping, "data/weights/weight_0", 1000);  // reaches into the records behind it
  says(error_of_bytes(overlapping), "overlap");
  std::string table = ArchiveBuilder().bytes();
  lie_about_size(table, "models/model.json", 100);
  CHECK(error_of_bytes(table) != "");
}

TEST_CASE("compressed weights are refused: they cannot be used where they lie") {
  says(error_of_bytes(ArchiveBuilder().bytes("data/weights/weight_0")), "is compressed");
  CHECK(error_of_bytes(ArchiveBuilder().bytes("models/model.json")) == "");  // read as a whole anyway
}

TEST_CASE("views that leave their storage are errors") {
  const std::string sizes = R"("sizes": [{"as_int": 4}])", strides = R"("strides": [{"as_int": 1}])";
  says(error_of_weights(sizes, R"("sizes": [{"as_int": 17}])"),
       "needs 68 bytes of record 'data/weights/weight_0', which has 64");
  says(error_of_weights(strides, R"("strides": [{"as_int": 6}])"), "needs 76 bytes");
  says(error_of_weights(R"("storage_offset": {"as_int": 12})", R"("storage_offset": {"as_int": 13})"),
       "needs 68 bytes");
  says(error_of_weights(R"("storage_offset": {"as_int": 12})", R"("storage_offset": {"as_int": -1})"),
       "negative");
  says(error_of_weights(R"("storage_offset": {"as_int": 12})",
                        R"("storage_offset": {"as_int": 9223372036854775807})"),
       "64 bit");
  says(error_of_weights(sizes, R"("sizes": [{"as_int": -4}])"), "a negative number: -4");
  says(error_of_weights(strides, R"("strides": [{"as_int": -1}])"), "a negative number: -1");
  says(error_of_weights(strides, R"("strides": [{"as_int": 9223372036854775807}])"), "64 bit");
  says(error_of_weights(sizes, R"("sizes": [{"as_int": 9223372036854775807}])"), "64 bit");
  says(error_of_weights(sizes + R"(, "requires_grad")",
                        R"("sizes": [{"as_int": 4}, {"as_int": 4}], "requires_grad")"),
       "differ in number");
  says(error_of_weights(sizes, R"("sizes": [{"as_int": 99999999999999999999}])"),
       "expected a 64-bit integer");
  says(error_of_weights(sizes, R"("sizes": [{"as_int": 4.5}])"), "expected a 64-bit integer");
  says(error_of_weights(sizes, R"~("sizes": [{"as_expr": {"expr_str": "Symbol('s0')"}}])~"),
       "key 'as_int' is missing");
}

TEST_CASE("broadcast strides cannot hide an endless tensor") {
  ArchiveBuilder builder;
  builder.edit_weights(R"("sizes": [{"as_int": 4}])",
                       R"("sizes": [{"as_int": 4294967296}, {"as_int": 4294967296}])");
  builder.edit_weights(R"("strides": [{"as_int": 1}])", R"("strides": [{"as_int": 0}, {"as_int": 0}])");
  says(error_of(builder), "64 bit");
}

TEST_CASE("an empty tensor lies in an empty record") {
  ArchiveBuilder builder;
  builder.set("data/weights/weight_1", "");
  builder.edit_weights(R"({"config": {)",
                       R"({"config": {"none": )" +
                           ArchiveBuilder::payload(
                               "weight_1", ArchiveBuilder::meta(R"({"as_int": 0})", ArchiveBuilder::kOne)) +
                           ", ");
  CHECK(error_of(builder) == "");
}

TEST_CASE("pickled weights are never loaded") {
  says(error_of_weights(R"("use_pickle": false)", R"("use_pickle": true)"), "pickled");
}

TEST_CASE("weights of unknown element types and layouts are refused") {
  says(error_of_weights(R"("dtype": 7)", R"("dtype": 99)"), "unknown element type");
  says(error_of_weights(R"("dtype": 7)", R"("dtype": 0)"), "unknown element type");
  says(error_of_weights(R"("layout": 7)", R"("layout": 1)"), "only dense");
}

TEST_CASE("names of weight records cannot leave their folder") {
  for (const char* path : {"../weights/weight_0", "/etc/passwd", "a\\\\b", ""}) {
    CAPTURE(path);
    says(error_of_weights(R"("path_name": "weight_0")", std::string(R"("path_name": ")") + path + "\""),
         "no plain file name");
  }
  says(error_of_weights(R"("path_name": "weight_0")", R"("path_name": "model_weights_config.json ")"),
       "is missing");
}

TEST_CASE("weights that the graph uses otherwise than they are stored are errors") {
  says(error_of_model(R"("parameter_name": "w")", R"("parameter_name": "v")"),
       "uses the weight 'v', which the archive does not have");
  says(error_of_model(R"("p_w": {"dtype": 7)", R"("p_w": {"dtype": 6)"),
       "weight 'w' is f32[4] in the archive, but the graph takes f16[4]");
}

TEST_CASE("texts of the wrong type or without a key are errors that name the record and the place") {
  says(error_of_model(R"("target": "torch.ops.aten.relu.default")", R"("target": 3)"),
       "record 'models/model.json' at 'graph_module.graph.nodes[1].target': expected a string, found an "
       "integer");
  says(error_of_model(R"("outputs": [{"as_tensor": {"name": "relu"}}])", R"("outputs": {})"),
       "expected an array, found an object");
  says(error_of_model(R"("target": "torch.ops.aten.relu.default", )", ""),
       "graph_module.graph.nodes[1]': key 'target' is missing");
  says(error_of_model(R"("as_int": 4)", R"("as_int": "4")"), "expected a 64-bit integer, found a string");
  says(
      error_of_model(R"({"as_tensor": {"name": "add"}}])", R"({"as_tensor": {"name": "add"}, "as_int": 3}])"),
      "expected an object with one key");
  says(error_of_model(R"({"as_tensor": {"name": "add"}}])", R"({}])"),
       "expected an object with one key, found 0");
  says(error_of_model(R"("sym_int_values": {})", R"("sym_int_values": [])"),
       "expected an object, found an array");
  says(error_of_model(R"("range_constraints": {"s0": {"min_val": 2)",
                      R"("range_constraints": {"s0": {"min_val": "two")"),
       "expected a 64-bit integer");
  says(error_of_model(R"("metadata": {}, "is_hop)", R"("metadata": null, "is_hop)"),
       "expected an object, found null");
  says(error_of_model(R"("graph_module": {"graph": {)", R"("graph_module": {"graf": {)"),
       "key 'graph' is missing");
}

TEST_CASE("a record that is no JSON is an error") {
  for (const char* text :
       {"", "{", "[1, 2", "null", "{\"a\": 1,}", "{\"graph_module\": }", "\xff\xfe", "{} {}", "PK"}) {
    CAPTURE(text);
    ArchiveBuilder builder;
    builder.set("models/model.json", text);
    says(error_of(builder), "record 'models/model.json'");
  }
}

TEST_CASE("values of the same name, in the JSON or in the graph, are errors") {
  says(error_of_model(R"("c_c": {"dtype")", R"("p_w": {"dtype")"), "key 'p_w' occurs twice");
  says(error_of_model(R"("sym_bool_values": {})", R"("sym_bool_values": {"x": {"as_bool": true}})"),
       "defines value 'x' twice");
  says(error_of_model(R"("outputs": [{"as_tensor": {"name": "relu"}}])",
                      R"("outputs": [{"as_tensor": {"name": "add"}}])"),
       "produced again");
}

TEST_CASE("references to nothing, to the wrong kind or to later values are errors") {
  says(error_of_model(R"("arg": {"as_tensor": {"name": "add"}})",
                      R"("arg": {"as_tensor": {"name": "nothing"}})"),
       "no value 'nothing'");
  says(error_of_model(R"("arg": {"as_tensor": {"name": "add"}})",
                      R"("arg": {"as_sym_int": {"as_name": "add"}})"),
       "'add' is no symbolic int");
  says(
      error_of_model(R"("arg": {"as_tensor": {"name": "p_w"}})", R"("arg": {"as_tensor": {"name": "relu"}})"),
      "before anything produces it");
  says(error_of_model(R"({"name": "c_c"})", R"({"name": "p_w"})"), "produced again");
}

TEST_CASE("unknown kinds of inputs, outputs, sizes and results are errors") {
  says(error_of_model(R"({"user_input": {)", R"({"new_input": {)"), "unknown kind of input 'new_input'");
  says(error_of_model(R"({"user_output": {)", R"({"new_output": {)"), "unknown kind of output 'new_output'");
  says(error_of_model(R"({"user_output": {)", R"({"gradient_to_parameter": {)"),
       "training graphs are not supported");
  says(error_of_model(R"({"as_int": 4})", R"({"as_float": 4})"), "unknown kind of size 'as_float'");
  says(error_of_model(R"("outputs": [{"as_tensor": {"name": "relu"}}])", R"("outputs": [{"as_ints": [1]}])"),
       "results of kind 'as_ints'");
  says(error_of_model("Symbol('s0', positive=True, integer=True)", "Add(Symbol('s0'"), "is malformed");
}

TEST_CASE("deep nesting is an error and no stack overflow") {
  const std::string open(300, '['), close(300, ']');
  says(error_of_model(R"("verifiers": ["TRAINING"])", R"("verifiers": )" + open + close),
       "nested too deeply");
  ArchiveBuilder brackets;
  brackets.set("models/model.json", std::string(1000000, '['));
  says(error_of(brackets), "nested too deeply");
  std::string deep = "Symbol('s0')";
  for (int i = 0; i < 5000; ++i) deep = "Max(Integer(1), " + deep + ")";
  says(error_of_model("Symbol('s0', positive=True, integer=True)", deep), "nested too deeply");
  std::string tree = R"({\"type\": null, \"context\": null, \"children_spec\": []})";
  for (int i = 0; i < 200; ++i)
    tree = R"({\"type\": \"builtins.list\", \"context\": \"null\", \"children_spec\": [)" + tree + "]}";
  says(error_of_model(R"("out_spec": "[1, {\"type\": null, \"context\": null, \"children_spec\": []}]")",
                      R"("out_spec": "[1, )" + tree + R"(]")"),
       "nested too deeply");
}

TEST_CASE("foreign byte orders and formats are refused") {
  ArchiveBuilder order;
  order.set("byteorder", "big");
  says(error_of(order), "big-endian");
  ArchiveBuilder format;
  format.set("archive_format", "pt3");
  says(error_of(format), "archive_format");
}

TEST_CASE("odd names stay in one line of the message") {
  const std::string message = error_of_model(R"("parameter_name": "w")", R"("parameter_name": "a\nb\u0007")");
  says(message, "'a\\x0ab\\x07'");
}

TEST_CASE("a file that is none of ours is named for what it is, with what to do") {
  const auto torch_zip = [](const std::vector<const char*>& records) {
    ArchiveBuilder builder;
    builder.clear();
    for (const char* record : records) builder.set(record, "x");
    return builder.bytes();
  };
  const auto file = [](std::string head) { return head + std::string(100, '\0'); };
  const std::vector<std::pair<std::string, std::string>> cases{
      {std::string(), "is empty"},
      {torch_zip({"code/__torch__.py", "constants.pkl", "data.pkl"}), "is a TorchScript archive"},
      {torch_zip({"data.pkl", "data/0", "byteorder"}), "is a torch.save checkpoint"},
      {torch_zip({"data/aotinductor/model/model.wrapper.so", "archive_format"}), "is an AOTInductor package"},
      {torch_zip({"serialized_exported_program.json"}), "is an exported program of an older PyTorch"},
      {torch_zip({"something"}), "has no exported program"},
      {file(std::string("\x10\0\0\0\0\0\0\0{\"a\": {}}", 17)), "is a safetensors file"},
      {file("GGUF\3"), "is a GGUF file"},
      {file("\x08\x07\x12\x07pytorch"), "is an ONNX model"},
      {file("\x80\x02}q"), "is a pickle"},
      {file("\x93NUMPY"), "is a NumPy array"},
      {file("\x89HDF\r\n"), "is an HDF5 file"},
      {file("PK\3\4" + std::string(22, '\0') + std::string("\5\0\0\0x.npy", 9)), "is a NumPy .npz archive"},
      {file("PK\3\4" + std::string(22, '\0') + std::string("\7\0\0\0hi.docx", 11)),
       "is a zip archive of something else (first entry 'hi.docx')"},
      {file("hello"), "is not an exported program"},
      {"x", "is not an exported program"}};
  for (const auto& [bytes, expected] : cases) {
    CAPTURE(expected);
    const std::string message = error_of_bytes(bytes);
    says(message, expected);
    says(message, "torch.export.save");
  }
}

TEST_CASE("folders, missing and unreadable files are errors that say so") {
  const TempFile file(ArchiveBuilder().bytes());
  says(error_of_file(file.folder()), "is a folder");
  says(error_of_file(file.folder() / "nothing.pt2"), "cannot be opened: No such file or directory");
  std::filesystem::create_symlink(file.folder() / "loop", file.folder() / "loop");
  says(error_of_file(file.folder() / "loop"), "cannot be opened");
  REQUIRE(::mkfifo((file.folder() / "pipe").c_str(), 0600) == 0);
  says(error_of_file(file.folder() / "pipe"), "is no regular file");
  if (::geteuid() != 0) {
    std::filesystem::permissions(file.path(), std::filesystem::perms::none);
    says(error_of_file(file.path()), "cannot be opened: Permission denied");
  }
}

TEST_CASE("no flipped byte crashes the reader") {
  const std::string bytes = ArchiveBuilder().bytes();
  std::uint32_t random = 12345;  // the same bytes in every run
  int refused = 0;
  for (int i = 0; i < 300; ++i) {
    std::string damaged = bytes;
    random = random * 1664525 + 1013904223;
    const std::size_t position = random % damaged.size();
    damaged[position] = static_cast<char>(damaged[position] ^ static_cast<char>(1U << (random >> 29)));
    try {
      read_pt2(TempFile(damaged).path());
    } catch (const Error&) {
      ++refused;
    }
  }
  CHECK(refused > 0);
}
