#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <doctest/doctest.h>

#include "file_builders.hpp"
#include "lowtide/error.hpp"
#include "tensor_file/pickle.hpp"
#include "tensor_file/tensor_file.hpp"

using namespace lowtide;
using namespace lowtide::tensor_file;
using namespace lowtide::test;

namespace {

const std::string kSixFloats = bytes_of(std::vector<float>{0, 1, 2, 3, 4, 5});

std::string error_of(const TempDir& dir, const std::string& value,
                     const Members& storages = {{"0", kSixFloats}}) {
  const auto path = dir / "x.pt";
  write_pt(path, value, storages);
  const std::string message = message_of<InputError>([&] { read_tensors(path); });
  CHECK_FALSE(contains(message, "\n"));
  return message;
}

}  // namespace

TEST_CASE("a .pt of one tensor, a list, a tuple or a dict gives unnamed, numbered or named tensors") {
  const TempDir dir;
  const auto path = dir / "x.pt";
  const std::string whole = pickled::tensor("FloatStorage", "0", 0, {2, 3}, {3, 1});
  const std::string part = pickled::tensor("LongStorage", "1", 1, {}, {});
  const Members storages{{"0", kSixFloats}, {"1", bytes_of(std::vector<std::int64_t>{8, 9})}};
  const auto names = [&](const std::string& value) {
    write_pt(path, value, storages);
    std::vector<std::string> found;
    for (const auto& [name, tensor] : read_tensors(path)) found.push_back(name);
    return found;
  };
  using Names = std::vector<std::string>;
  CHECK(names(whole) == Names{""});
  CHECK(names("](" + whole + part + "e") == Names{"0000", "0001"});
  CHECK(names(pickled::tuple({whole, part})) == Names{"0000", "0001"});
  CHECK(names(pickled::dict({{"ids", part}, {"x", whole}})) == Names{"ids", "x"});
  const auto read = read_tensors(path);
  CHECK(read.at(0).tensor.item<std::int64_t>() == 9);
  CHECK(at::equal(read.at(1).tensor, at::arange(6, at::kFloat).reshape({2, 3})));
  CHECK((read_header(path) ==
         std::vector<TensorEntry>{{"ids", graph::DType::i64, {}, 9}, {"x", graph::DType::f32, {2, 3}, {}}}));
}

TEST_CASE("state dicts and parameters are read as the tensors they are") {
  const TempDir dir;
  const auto path = dir / "x.pt";
  const std::string weight = pickled::call(pickled::global("torch._utils", "_rebuild_parameter"),
                                           {pickled::tensor("FloatStorage", "0", 0, {6}, {1}), "\x88", "}"});
  const std::string ordered = pickled::call(pickled::global("collections", "OrderedDict"), {}) + "(" +
                              pickled::text("w") + weight + "u";
  write_pt(path, ordered + "}b", {{"0", kSixFloats}});
  const auto read = read_tensors(path);
  REQUIRE(read.size() == 1);
  CHECK(read[0].name == "w");
  CHECK(at::equal(read[0].tensor, at::arange(6, at::kFloat)));
}

TEST_CASE("views of a shared storage become row-major tensors with memory of their own") {
  const TempDir dir;
  const auto path = dir / "x.pt";
  write_pt(path,
           pickled::dict({{"transposed", pickled::tensor("FloatStorage", "0", 0, {3, 2}, {1, 3})},
                          {"slice", pickled::tensor("FloatStorage", "0", 4, {2}, {1})},
                          {"expanded", pickled::tensor("FloatStorage", "0", 5, {2, 2}, {0, 0})},
                          {"empty", pickled::tensor("FloatStorage", "0", 6, {0}, {1})}}),
           {{"0", kSixFloats}});
  auto read = read_tensors(path);
  CHECK(at::equal(read.at(0).tensor, at::arange(6, at::kFloat).reshape({2, 3}).t()));
  CHECK(read.at(0).tensor.is_contiguous());
  read.at(1).tensor.fill_(7);
  CHECK(at::equal(read.at(2).tensor, at::arange(5, 6, at::kFloat).expand({2, 2})));
  CHECK(read.at(3).tensor.numel() == 0);
}

TEST_CASE("nothing in a .pt is executed: objects and functions are refused by name") {
  const TempDir dir;
  const std::string evil = pickled::call(pickled::global("os", "system"), {pickled::text("true")});
  CHECK(contains(error_of(dir, pickled::dict({{"x", evil}})), "'x' holds an object of Python (os.system)"));
  CHECK(contains(error_of(dir, pickled::global("builtins", "eval")), "builtins.eval"));
  CHECK(contains(error_of(dir, pickled::dict({{"x", pickled::integer(3)}})), "'x' is no tensor"));
  CHECK(contains(error_of(dir, "}(" + pickled::integer(1) + pickled::integer(2) + "u"), "key"));
  CHECK(contains(error_of(dir, "i"), "opcode 105"));
}

TEST_CASE("views that leave their storage or multiply it absurdly are refused") {
  const TempDir dir;
  using pickled::tensor;
  constexpr std::int64_t kHuge = std::int64_t{1} << 60;
  REQUIRE(error_of(dir, tensor("FloatStorage", "0", 0, {6}, {1})).empty());
  for (const std::string& value :
       {tensor("FloatStorage", "0", 0, {7}, {1}), tensor("FloatStorage", "0", 1, {6}, {1}),
        tensor("FloatStorage", "0", -1, {2}, {1}), tensor("FloatStorage", "0", 0, {2}, {-1}),
        tensor("FloatStorage", "0", 0, {-2}, {1}), tensor("FloatStorage", "0", 0, {2}, {kHuge}),
        tensor("FloatStorage", "0", 0, {kHuge, kHuge}, {0, 0}),
        tensor("FloatStorage", "0", INT64_MAX, {1}, {1}),
        tensor("FloatStorage", "0", 0, {3, 3}, {INT64_MAX, INT64_MAX}),
        tensor("DoubleStorage", "0", 0, {4}, {1})}) {
    CHECK(contains(error_of(dir, value), "leaves its storage of 24 bytes"));
  }
  CHECK(contains(error_of(dir, tensor("FloatStorage", "0", 0, {kHuge / 16}, {0})), "without expand()"));
  CHECK(contains(error_of(dir, tensor("FloatStorage", "9", 0, {1}, {1})), "storage '9' is missing"));
  CHECK(contains(error_of(dir, tensor("FloatStorage", "../data.pkl", 0, {1}, {1})), "is missing"));
  CHECK(contains(error_of(dir, tensor("QInt8Storage", "0", 0, {1}, {1})), "QInt8Storage"));
}

TEST_CASE("files that torch.save did not write, and the format before 1.6, are told apart") {
  const TempDir dir;
  CHECK(contains(message_of<InputError>([&] { read_tensors(dir.write("x.pt", "\x80\x02\x8a\x0al\xfc")); }),
                 "before 1.6"));
  CHECK(contains(message_of<InputError>([&] { read_tensors(dir.write("x.pt", "")); }), "too short"));
  write_zip(dir / "x.pt", {{"m/constants.pkl", "x"}, {"m/data.pkl", "x"}});
  CHECK(contains(message_of<InputError>([&] { read_tensors(dir / "x.pt"); }), "TorchScript"));
  write_zip(dir / "x.pt", {{"m/other", "x"}});
  CHECK(contains(message_of<InputError>([&] { read_tensors(dir / "x.pt"); }), "zip without the data"));
  write_zip(dir / "x.pt", {{"m/data.pkl", pickled::program("}")}, {"m/byteorder", "big"}});
  CHECK(contains(message_of<InputError>([&] { read_tensors(dir / "x.pt"); }), "not little-endian"));
}

TEST_CASE("a pickle that underflows its stack, cuts a value short or refers to nothing is refused") {
  using pickle::Pickle;
  using pickle::PickleError;
  for (const std::string_view text :
       {"", "\x80\x02", ".", "\x80\x02R.", "N", "t.", "a.", "NNa.", "(u.", "}(Nu.", "h\1.", "Q.", "s.", "b.",
        "X\xff\xff\xff\xffzz.", "\x8a\xffzz.", "cmodule.", "\x80\x09N."}) {
    CAPTURE(text);
    CHECK_THROWS_AS(Pickle(text).root(), PickleError);
  }
  CHECK(Pickle(std::string_view("\x80\x02\x8a\x02\x00\xff.", 7)).root().integer == -256);
}

TEST_CASE("a pickled list that contains itself is data like any other") {
  const pickle::Pickle loop(std::string_view("]q\1h\1a."));
  CHECK(loop.root().items.at(0) == &loop.root());
  const TempDir dir;
  CHECK(contains(error_of(dir, "]q\1h\1a"), "'0000' is no tensor"));
}
