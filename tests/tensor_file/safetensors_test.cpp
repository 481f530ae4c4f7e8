#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>

#include <limits>

#include "file_builders.hpp"
#include "lowtide/error.hpp"
#include "tensor_file/tensor_file.hpp"

using namespace lowtide;
using namespace lowtide::tensor_file;
using namespace lowtide::test;

namespace {

std::string error_of(const TempDir& dir, const std::string& header, const std::string& data) {
  const auto path = dir.write("x.safetensors", safetensors_bytes(header, data));
  const std::string from_header = message_of<InputError>([&] { read_header(path); });
  CHECK(message_of<InputError>([&] { read_tensors(path); }) == from_header);
  CHECK((from_header.empty() || contains(from_header, path.string())));
  CHECK_FALSE(contains(from_header, "\n"));
  return from_header;
}

}  // namespace

TEST_CASE(
    "what write_safetensors writes, read_tensors reads back: every element type, zero-size, 0-d, any "
    "strides") {
  const TempDir dir;
  const auto path = dir / "x.safetensors";
  std::vector<NamedTensor> written;
  for (const auto type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort,
                          at::kChar, at::kByte, at::kBool, at::kFloat8_e4m3fn, at::kFloat8_e5m2, at::kUInt16,
                          at::kUInt32, at::kUInt64, at::kComplexFloat}) {
    written.push_back({c10::toString(type), at::arange(6, at::kFloat).reshape({2, 3}).to(type)});
  }
  written.push_back({"transposed", at::arange(24, at::kFloat).reshape({2, 3, 4}).transpose(0, 2)});
  written.push_back({"conjugated", at::ones({2}, at::kComplexFloat).mul(c10::complex<double>(0, 1)).conj()});
  written.push_back({"expanded", at::ones({1}).expand({2, 2})});
  written.push_back({"empty", at::zeros({0, 7})});
  written.push_back({"scalar", at::scalar_tensor(42, at::kLong)});
  written.push_back({"line\nbreak \"quoted\" \xc3\xbc", at::ones({1})});
  const std::map<std::string, std::string> metadata{{"names", "[\"a\"]"}, {"quote\"", "line\n"}};
  write_safetensors(path, written, metadata);

  const auto read = read_tensors(path);
  REQUIRE(read.size() == written.size());
  for (std::size_t i = 0; i < read.size(); ++i) {
    CAPTURE(written[i].name);
    CHECK(read[i].name == written[i].name);
    CHECK((read[i].tensor.scalar_type() == written[i].tensor.scalar_type()));
    CHECK(read[i].tensor.is_contiguous());
    REQUIRE((read[i].tensor.sizes() == written[i].tensor.sizes()));
    const at::Tensor expected = written[i].tensor.contiguous().resolve_conj();
    if (expected.numel() == 0) continue;
    CHECK(std::memcmp(read[i].tensor.const_data_ptr(), expected.const_data_ptr(), expected.nbytes()) == 0);
  }
  CHECK(read_metadata(path) == metadata);
}

TEST_CASE(
    "in a written file the data starts at a multiple of 8 and each tensor at a multiple of its element "
    "size") {
  const TempDir dir;
  const auto path = dir / "x.safetensors";
  write_safetensors(path, std::vector<NamedTensor>{{"b", at::ones({3}, at::kBool)},
                                                   {"d", at::full({2}, 2.5, at::kDouble)}});
  const std::string bytes = read_bytes(path);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  CHECK((8 + length) % 8 == 0);
  CHECK(bytes.substr(8 + length) == bytes_of(std::vector<double>{2.5, 2.5}) + "\1\1\1");
  CHECK(bytes.find("\"b\"") < bytes.find("\"d\""));  // names keep their order, data need not
}

TEST_CASE("NaNs and infinities keep their bits") {
  const TempDir dir;
  const std::string data = bytes_of(std::vector<std::uint32_t>{0x7fc00001, 0xff800000, 0x7f800001});
  const auto path = dir.write(
      "x.safetensors", safetensors_bytes(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})", data));
  CHECK(std::memcmp(read_tensors(path).at(0).tensor.const_data_ptr(), data.data(), data.size()) == 0);
}

TEST_CASE(
    "a header tells names, element types, sizes and the value of 0-d integers without reading the rest") {
  const TempDir dir;
  const auto path = dir / "x.safetensors";
  write_safetensors(path, std::vector<NamedTensor>{{"f", at::zeros({2, 3}, at::kHalf)},
                                                   {"n", at::scalar_tensor(-7, at::kLong)},
                                                   {"flag", at::ones({}, at::kBool)},
                                                   {"u32", at::zeros({1}, at::kUInt32)}});
  const std::vector<TensorEntry> expected{{"f", graph::DType::f16, {2, 3}, {}},
                                          {"n", graph::DType::i64, {}, -7},
                                          {"flag", graph::DType::boolean, {}, 1},
                                          {"u32", graph::DType::unknown, {1}, {}}};
  CHECK((read_header(path) == expected));
}

TEST_CASE("bools other than 0 and 1 are read as true") {
  const TempDir dir;
  const auto path = dir.write("x.safetensors",
                              safetensors_bytes(R"({"a":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})",
                                                std::string("\x00\x02\xff", 3)));
  const auto tensor = read_tensors(path).at(0).tensor;
  CHECK(std::memcmp(tensor.const_data_ptr(), "\0\1\1", 3) == 0);
}

TEST_CASE("a file of no tensors and a file of metadata only are legal") {
  const TempDir dir;
  CHECK(read_tensors(dir.write("a.safetensors", safetensors_bytes("{}", ""))).empty());
  CHECK(read_tensors(dir.write("b.safetensors", safetensors_bytes(R"({"__metadata__":{"a":"b"}}  )", "")))
            .empty());
}

TEST_CASE("hostile safetensors headers are refused in one line that names file and tensor") {
  const TempDir dir;
  const std::string four(4, '\0');
  const auto entry = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  REQUIRE(error_of(dir, entry("F32", "[1]", "[0,4]"), four).empty());
  CHECK(contains(error_of(dir, entry("F32", "[1]", "[0,8]"), four), "tensor 'a' lies at bytes 0 to 8 of 4"));
  CHECK(contains(error_of(dir, entry("F32", "[1]", "[4,0]"), four), "lies at bytes 4 to 0"));
  CHECK(contains(error_of(dir, entry("F32", "[2]", "[0,4]"), four), "contradict"));
  CHECK(contains(error_of(dir, entry("F32", "[4611686018427387904]", "[0,4]"), four), "contradict"));
  CHECK(
      contains(error_of(dir, entry("F32", "[4294967296,4294967296,4294967296]", "[0,0]"), ""), "contradict"));
  CHECK(contains(error_of(dir, entry("F32", "[0,9223372036854775807,9223372036854775807]", "[0,0]"), ""),
                 "contradict"));
  CHECK(contains(error_of(dir, entry("F32", "[18446744073709551615]", "[0,4]"), four), "no valid shape"));
  CHECK(contains(error_of(dir, entry("F32", "[-1]", "[0,4]"), four), "no valid shape"));
  CHECK(contains(error_of(dir, entry("F32", "[1.0]", "[0,4]"), four), "no valid shape"));
  CHECK(contains(error_of(dir, entry("F32", "[1]", "[0]"), four), "no valid data_offsets"));
  CHECK(contains(error_of(dir, entry("F4", "[1]", "[0,4]"), four), "unknown dtype 'F4'"));
  CHECK(contains(error_of(dir, entry("F32", "[1]", "[0,4]"), four + "x"), "belong to no tensor"));
  CHECK(contains(
      error_of(
          dir,
          R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[3],"data_offsets":[1,4]}})",
          four),
      "overlap"));
  CHECK(contains(
      error_of(
          dir,
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
          four),
      "gap"));
  CHECK(contains(
      error_of(
          dir,
          R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"a":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
          four),
      "two tensors named 'a'"));
  CHECK(contains(error_of(dir, R"({"a":7})", four), "not described by an object"));
  CHECK(contains(error_of(dir, "[1,2]", four), "no JSON object"));
  CHECK(contains(error_of(dir, "{\"a\":", four), "no JSON"));
  CHECK(contains(error_of(dir, "{\"\xff\":1}", four), "no JSON"));
  CHECK(contains(error_of(dir, R"({"a":)" + std::string(100000, '['), four), "nested too deep"));
}

TEST_CASE("safetensors files that are cut or lie about their header length are refused") {
  const TempDir dir;
  const std::string whole =
      safetensors_bytes(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", std::string(8, 'x'));
  REQUIRE(read_tensors(dir.write("x.safetensors", whole)).size() == 1);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    CAPTURE(length);
    CHECK_THROWS_AS(read_tensors(dir.write("x.safetensors", whole.substr(0, length))), InputError);
  }
  for (const std::uint64_t claim :
       {std::uint64_t{1} << 60, std::numeric_limits<std::uint64_t>::max(), std::uint64_t{100}}) {
    CHECK_THROWS_AS(read_header(dir.write("x.safetensors", bytes_of(claim) + "{}")), InputError);
  }
}

TEST_CASE(
    "write_safetensors refuses what the format cannot hold and leaves no file handle or half-truth behind") {
  const TempDir dir;
  const auto path = dir / "x.safetensors";
  const auto refusal = [&](std::vector<NamedTensor> tensors) {
    return message_of<Error>([&] { write_safetensors(path, tensors); });
  };
  CHECK(contains(refusal({{"z", at::zeros({1}, at::kComplexDouble)}}), "ComplexDouble"));
  CHECK(contains(refusal({{"a", at::zeros({1})}, {"a", at::zeros({1})}}), "occurs twice"));
  CHECK(contains(refusal({{"__metadata__", at::zeros({1})}}), "reserved"));
  CHECK(contains(refusal({{"\xff", at::zeros({1})}}), "UTF-8"));
  CHECK(contains(refusal({{"u", at::Tensor()}}), "not a dense tensor"));
  CHECK_FALSE(std::filesystem::exists(path));
  CHECK(contains(message_of<Error>([&] { write_safetensors(dir / "none" / "x.safetensors", {}); }),
                 "No such file"));
  CHECK(contains(message_of<Error>([&] {
                   write_safetensors("/dev/full", std::vector<NamedTensor>{{"a", at::zeros({9})}});
                 }),
                 "No space"));
}
