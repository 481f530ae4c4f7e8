#include "archive/pt2_archive.hpp"

#include <doctest/doctest.h>

#include "archive/archive_builder.hpp"
#include "graph/graph_text.hpp"
#include "graph/input_binding.hpp"
#include "lowtide/error.hpp"

using namespace lowtide;
using namespace lowtide::archive;
using namespace lowtide::test;

namespace {

Pt2Archive read(const ArchiveBuilder& builder, const std::string& program = {}) {
  return read_pt2(TempFile(builder.bytes()).path(), program);
}

/// A node line whose single argument is `argument`, spliced in before the others.
std::string with_argument(const std::string& argument) {
  ArchiveBuilder builder;
  builder.edit_model(R"("nodes": [)",
                     R"("nodes": [{"target": "torch.ops.my.op.default", "inputs": [{"name": "a", "arg": )" +
                         argument + R"(, "kind": 1}], "outputs": [], "metadata": {}},)");
  builder.edit_model(R"("sym_int_values": {})", R"("sym_int_values": {"n": {"as_int": 3}})");
  builder.edit_model(R"("input_specs": [)",
                     R"("input_specs": [{"user_input": {"arg": {"as_sym_int": {"as_name": "n"}}}},)");
  const Pt2Archive archive = read(builder);
  return print_node(archive.program, archive.program.graph, archive.program.graph.nodes[0]);
}

std::string treespec(const std::string& tree) {
  std::string text = tree;
  replace_all(text, "*", R"({\"type\": null, \"context\": null, \"children_spec\": []})");
  return text;
}

/// A container of a tree specification, inside a JSON string.
std::string container(const std::string& type, const std::string& context, const std::string& children) {
  return R"({\"type\": \")" + type + R"(\", \"context\": \")" + context + R"(\", \"children_spec\": [)" +
         children + "]}";
}

constexpr const char* kLeafOut =
    R"("out_spec": "[1, {\"type\": null, \"context\": null, \"children_spec\": []}]")";

std::vector<std::string> output_names(const std::string& tree, int outputs,
                                      const std::string& named_tuples = "{}") {
  ArchiveBuilder builder;
  builder.edit_model(kLeafOut, R"("out_spec": "[1, )" + treespec(tree) + R"(]")");
  builder.edit_model(R"("treespec_namedtuple_fields": {})",
                     R"("treespec_namedtuple_fields": )" + named_tuples);
  std::string specs;
  for (int i = 0; i < outputs; ++i)
    specs +=
        (i == 0 ? "" : ", ") + std::string(R"({"user_output": {"arg": {"as_tensor": {"name": "relu"}}}})");
  builder.edit_model(R"("output_specs": [{"user_output": {"arg": {"as_tensor": {"name": "relu"}}}}])",
                     R"("output_specs": [)" + specs + "]");
  return read(builder).program.user_output_names;
}

/// Of a model with two inputs that are the leaves of its argument `image`.
std::vector<std::string> input_names(const std::string& tree) {
  ArchiveBuilder builder;
  builder.edit_model(
      R"([{\"type\": null, \"context\": null, \"children_spec\": []}]}, {\"type\": \"builtins.dict\")",
      "[" + treespec(tree) + R"(]}, {\"type\": \"builtins.dict\")");
  builder.edit_model(
      R"({"user_input": {"arg": {"as_tensor": {"name": "x"}}}})",
      R"({"user_input": {"arg": {"as_tensor": {"name": "x"}}}}, {"constant_input": {"name": "n", "value": {"as_int": 2}}})");
  return read(builder).program.user_input_names;
}

}  // namespace

TEST_CASE("an archive gives the graph, its weights and the names that callers use") {
  const TempFile file(ArchiveBuilder().bytes());
  const Pt2Archive archive = read_pt2(file.path());
  CHECK(print_graph(archive.program) == R"(program model
ranges s0: [2, 64]
hints s0: 3
guard "L['image'].size()[0] <= 64"
weights w = p_w: f32[4]
constants c = c_c: f32[4]
inputs image = x: f32[s0, 4]
add = aten::add.Tensor(self=x, other=p_w): f32[s0, 4]   # nn.py:9 in add
relu = aten::relu(self=add): f32[s0, 4]
outputs relu
)");
  CHECK(archive.program_names == std::vector<std::string>{"model"});
  CHECK(archive.file_bytes == std::filesystem::file_size(file.path()));
  CHECK(archive.modified_ns > 0);
  CHECK(archive.fingerprint.size() == 64);
  REQUIRE(archive.weights.files.size() == 2);
  CHECK(archive.weights.weights.size() == 3);
  CHECK(archive.weights.total_bytes() == 80);
  CHECK(archive.weights.parameters_and_buffers.at("tail") == 1);
  CHECK(archive.weights.weights[1].meta.storage_offset == 12);
  CHECK(archive.weights.resolve(archive.program.graph) == std::vector<std::uint32_t>{0, 2, UINT32_MAX});
}

TEST_CASE("records are found in the file: names of one record share it") {
  const std::string bytes = ArchiveBuilder().bytes();
  const Pt2Archive archive = read_pt2(TempFile(bytes).path());
  const auto& files = archive.weights.files;
  CHECK(files[0].record == "data/weights/weight_0");
  CHECK(bytes.substr(files[0].offset, files[0].bytes) == std::string(64, 'w'));
  CHECK(bytes.substr(files[1].offset, files[1].bytes) == std::string(16, 'c'));
  CHECK(archive.weights.weights[0].file == archive.weights.weights[1].file);
  CHECK(files[0].offset % 64 == 0);
}

TEST_CASE("the sample inputs are those of the export") {
  const Pt2Archive archive = read(ArchiveBuilder());
  const auto samples = graph::sample_inputs(archive.program);
  REQUIRE(samples.has_value());
  CHECK(samples->at(0).value().sizes == std::vector<std::int64_t>{3, 4});
}

TEST_CASE("hints of expressions tell the symbols inside where no bare symbol has one") {
  ArchiveBuilder builder;
  builder.edit_model(R"~("expr_str": "Symbol('s0', positive=True, integer=True)", "hint": {"as_int": 3})~",
                     R"~("expr_str": "Mul(Integer(2), Symbol('s0', integer=True))", "hint": {"as_int": 6})~");
  const Pt2Archive archive = read(builder);
  CHECK(graph::sample_inputs(archive.program).value()[0].value().sizes == std::vector<std::int64_t>{6, 4});
  CHECK(archive.program.hints.size() == 1);
}

TEST_CASE("the fingerprint depends on program, tables and sizes") {
  const std::string plain = read(ArchiveBuilder()).fingerprint;
  CHECK(read(ArchiveBuilder()).fingerprint == plain);
  ArchiveBuilder other;
  other.edit_model("aten.relu.default", "aten.tanh.default");
  CHECK(read(other).fingerprint != plain);
  ArchiveBuilder longer;
  longer.set("data/weights/weight_0", std::string(128, 'w'));
  CHECK(read(longer).fingerprint != plain);
}

TEST_CASE("one of several programs is chosen by name") {
  ArchiveBuilder builder;
  builder.set("models/second.json", ArchiveBuilder::model());
  builder.set("data/weights/second_weights_config.json", ArchiveBuilder::weights_config());
  builder.set("data/constants/second_constants_config.json", ArchiveBuilder::constants_config());
  builder.edit("models/second.json", "aten.relu.default", "aten.tanh.default");
  CHECK(read(builder, "second").program.graph.nodes[1].op_name() == "aten::tanh");
  CHECK(read(builder, "second").program.name == "second");
  CHECK(read(builder, "model").program.graph.nodes[1].op_name() == "aten::relu");
  CHECK_THROWS_WITH_AS(read(builder), "the archive holds several programs, choose one of 'model', 'second'",
                       UsageError);
  CHECK_THROWS_WITH_AS(read(builder, "third"), "the archive has no program 'third'; it has 'model', 'second'",
                       UsageError);
  CHECK_THROWS_AS(read(ArchiveBuilder(), "third"), UsageError);
}

TEST_CASE("each kind of argument is read") {
  CHECK(with_argument(R"({"as_none": true})") == "my::op(a=None)");
  CHECK(with_argument(R"({"as_int": -3})") == "my::op(a=-3)");
  CHECK(with_argument(R"({"as_float": 1e-5})") == "my::op(a=1e-05)");
  CHECK(with_argument(R"({"as_float": "-Infinity"})") == "my::op(a=-inf)");
  CHECK(with_argument(R"({"as_float": "NaN"})") == "my::op(a=nan)");
  CHECK(with_argument(R"({"as_bool": false})") == "my::op(a=false)");
  CHECK(with_argument(R"({"as_string": "none"})") == R"(my::op(a="none"))");
  CHECK(with_argument(R"({"as_ints": [1, 2]})") == "my::op(a=[1, 2])");
  CHECK(with_argument(R"({"as_floats": [1.0, 2]})") == "my::op(a=[1.0, 2.0])");
  CHECK(with_argument(R"({"as_bools": [true]})") == "my::op(a=[true])");
  CHECK(with_argument(R"({"as_strings": ["a"]})") == R"(my::op(a=["a"]))");
  CHECK(with_argument(R"({"as_tensor": {"name": "x"}})") == "my::op(a=x)");
  CHECK(with_argument(R"({"as_tensors": [{"name": "x"}, {"name": "p_w"}]})") == "my::op(a=[x, p_w])");
  CHECK(with_argument(R"({"as_optional_tensor": {"as_none": true}})") == "my::op(a=None)");
  CHECK(with_argument(R"({"as_optional_tensor": {"as_tensor": {"name": "x"}}})") == "my::op(a=x)");
  CHECK(with_argument(R"({"as_optional_tensors": [{"as_none": true}, {"as_tensor": {"name": "x"}}]})") ==
        "my::op(a=[None, x])");
  CHECK(with_argument(R"({"as_sym_int": {"as_name": "n"}})") == "my::op(a=n)");
  CHECK(with_argument(R"({"as_sym_int": {"as_int": 4}})") == "my::op(a=4)");
  CHECK(with_argument(R"({"as_sym_ints": [{"as_int": 4}, {"as_name": "n"}]})") == "my::op(a=[4, n])");
  CHECK(with_argument(R"({"as_sym_ints": [{"as_int": 4}]})") == "my::op(a=[4])");
  CHECK(with_argument(R"({"as_sym_float": {"as_float": 4.5}})") == "my::op(a=4.5)");
  CHECK(with_argument(R"({"as_sym_floats": [{"as_float": 4.5}]})") == "my::op(a=[4.5])");
  CHECK(with_argument(R"({"as_sym_bool": {"as_bool": true}})") == "my::op(a=true)");
  CHECK(with_argument(R"({"as_sym_bools": [{"as_bool": true}]})") == "my::op(a=[true])");
  CHECK(with_argument(R"({"as_scalar_type": 13})") == "my::op(a=dtype bf16)");
  CHECK(with_argument(R"({"as_memory_format": 2})") == "my::op(a=memory_format 2)");
  CHECK(with_argument(R"({"as_layout": 7})") == "my::op(a=layout 7)");
  CHECK(with_argument(R"({"as_device": {"type": "cuda", "index": 1}})") == "my::op(a=device cuda:1)");
  CHECK(with_argument(R"({"as_complex": {"real": 1, "imag": -2.5}})") == "my::op(a=complex(1.0, -2.5))");
  CHECK(with_argument(R"({"as_operator": "aten.add.Tensor"})") == "my::op(a=operator aten.add.Tensor)");
  CHECK(with_argument(R"({"as_custom_obj": {"name": "q", "class_fqn": "my.Queue"}})") ==
        "my::op(a=object q)");
  CHECK(
      with_argument(
          R"({"as_graph": {"name": "body", "graph": {"inputs": [{"as_tensor": {"name": "x"}}], "outputs": [{"as_tensor": {"name": "x"}}],
      "nodes": [], "tensor_values": {"x": )" +
          ArchiveBuilder::meta("", "") + R"(}, "sym_int_values": {}, "sym_bool_values": {}}}})") ==
      "my::op(a=graph body)");
}

TEST_CASE("arguments that lowtide does not know are errors that say where they are") {
  for (const char* kind :
       {"as_nested_tensors", "as_int_lists", "as_string_to_argument", "as_something_new"}) {
    CAPTURE(kind);
    try {
      with_argument(std::string("{\"") + kind + "\": []}");
      FAIL("no error");
    } catch (const ArchiveError& error) {
      const std::string message = error.what();
      CHECK(message.find("graph_module.graph.nodes[0].inputs[0].arg") != std::string::npos);
      CHECK(message.find(std::string("arguments of kind '") + kind + "' are not supported") !=
            std::string::npos);
    }
  }
}

TEST_CASE("results: lists, unused slots and values that are declared nowhere") {
  ArchiveBuilder builder;
  builder.edit_model(
      R"("nodes": [)",
      R"("nodes": [{"target": "torch.ops.my.op.default", "inputs": [], "metadata": {}, "outputs": [
      {"as_tensors": [{"name": "a"}, {"name": "b"}]}, {"as_none": true}, {"as_tensor": {"name": "lost"}}, {"as_sym_int": {"as_int": 3}}]},)");
  const Pt2Archive archive = read(builder);
  CHECK(print_node(archive.program, archive.program.graph, archive.program.graph.nodes[0]) ==
        "[a, b], None, lost, None = my::op(): tensor, tensor, tensor");
}

TEST_CASE("inputs fixed at export and outputs that are numbers are kept") {
  ArchiveBuilder builder;
  builder.edit_model(
      R"({"user_input": {"arg": {"as_tensor": {"name": "x"}}}})",
      R"({"user_input": {"arg": {"as_tensor": {"name": "x"}}}}, {"constant_input": {"name": "n", "value": {"as_int": 2}}},
                        {"constant_input": {"name": "opt", "value": {"as_none": true}}})");
  builder.edit_model(
      R"([{"user_output": {"arg": {"as_tensor": {"name": "relu"}}}}])",
      R"([{"buffer_mutation": {"arg": {"name": "add"}, "buffer_name": "w"}}, {"user_input_mutation": {"arg": {"name": "add"}, "user_input_name": "x"}},
                        {"user_output": {"arg": {"as_float": 3.5}}}, {"user_output": {"arg": {"as_none": true}}}])");
  const std::string text = print_graph(read(builder).program);
  CHECK(text.find("inputs x: f32[s0, 4]\nfixed n = 2\nfixed opt = None\n") != std::string::npos);
  CHECK(text.find("updates buffer w = add\nupdates input x = add\noutputs 3.5\noutputs None\n") !=
        std::string::npos);
}

TEST_CASE("outputs are named by the keys of the output specification, else by position") {
  using Names = std::vector<std::string>;
  CHECK(output_names("*", 1) == Names{"0000"});
  CHECK(output_names(container("builtins.tuple", "null", "*, *"), 2) == Names{"0000", "0001"});
  CHECK(output_names(container("builtins.dict", R"([\\\"y\\\", \\\"z\\\"])", "*, *"), 2) == Names{"y", "z"});
  CHECK(output_names(container("builtins.dict", R"([\\\"y\\\", \\\"parts\\\"])",
                               "*, " + container("builtins.tuple", "null", "*, *")),
                     3) == Names{"y", "parts.0", "parts.1"});
  CHECK(output_names(
            container("builtins.tuple", "null", container("builtins.dict", R"([\\\"a\\\"])", "*") + ", *"),
            2) == Names{"0.a", "0001"});
  CHECK(output_names(container("collections.namedtuple", "my.Point", "*, *"), 2,
                     R"({"my.Point": {"field_names": ["left", "right"]}})") == Names{"left", "right"});
  CHECK(output_names(container("builtins.dict", "[3, 7]", "*, *"), 2) == Names{"3", "7"});
  CHECK(output_names(container("my.DataClass", R"([[\\\"a\\\", \\\"b\\\"], []])", "*, *"), 2) ==
        Names{"a", "b"});
  CHECK(output_names(container("my.Container", "not json", "*, *"), 2) == Names{"0000", "0001"});
  CHECK(output_names(container("builtins.dict", R"([\\\"y\\\", \\\"y\\\"])", "*, *"), 2) ==
        Names{"0000", "0001"});  // not unique
  CHECK(output_names(container("builtins.tuple", "null", "*, *"), 3) ==
        Names{"0000", "0001", "0002"});  // does not fit
}

TEST_CASE("inputs are named by integer keys and the fields of data classes, as guards name them") {
  using Names = std::vector<std::string>;
  CHECK(input_names(container("builtins.dict", "[7, 3]", "*, *")) == Names{"image[7]", "image[3]"});
  CHECK(input_names(container("my.DataClass", R"([[\\\"a\\\", \\\"b\\\"], []])", "*, *")) ==
        Names{"image.a", "image.b"});
}

TEST_CASE("an older or newer schema is refused with what to do") {
  ArchiveBuilder builder;
  builder.edit_model(R"("major": 8)", R"("major": 9)");
  try {
    read(builder);
    FAIL("no error");
  } catch (const ArchiveError& error) {
    CHECK(std::string(error.what())
              .find("export schema 9 is not supported, only 8; export the model with torch 2.11") !=
          std::string::npos);
  }
}
