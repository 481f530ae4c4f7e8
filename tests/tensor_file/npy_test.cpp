#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>

#include "file_builders.hpp"
#include "lowtide/error.hpp"
#include "tensor_file/tensor_file.hpp"

using namespace lowtide;
using namespace lowtide::tensor_file;
using namespace lowtide::test;

namespace {

std::string error_of(const TempDir& dir, const std::string& bytes) {
  const auto path = dir.write("x.npy", bytes);
  const std::string message = message_of<InputError>([&] { read_tensors(path); });
  CHECK((message_of<InputError>([&] { read_header(path); }) == message));
  CHECK_FALSE(contains(message, "\n"));
  return message;
}

}  // namespace

TEST_CASE("an .npy holds one unnamed tensor of any number type") {
  const TempDir dir;
  const std::vector<std::pair<std::string, at::ScalarType>> types{
      {"|b1", at::kBool},         {"|i1", at::kChar},          {"<i2", at::kShort},  {"<i4", at::kInt},
      {"<i8", at::kLong},         {"|u1", at::kByte},          {"<u2", at::kUInt16}, {"<u4", at::kUInt32},
      {"<u8", at::kUInt64},       {"<f2", at::kHalf},          {"<f4", at::kFloat},  {"<f8", at::kDouble},
      {"<c8", at::kComplexFloat}, {"<c16", at::kComplexDouble}};
  for (const auto& [descr, type] : types) {
    CAPTURE(descr);
    const at::Tensor tensor = at::arange(6).remainder(2).reshape({3, 2}).to(type);
    const std::string data(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
    const auto read = read_tensors(dir.write("x.npy", npy_array(descr, "(3, 2)", data)));
    REQUIRE(read.size() == 1);
    CHECK(read[0].name.empty());
    CHECK((read[0].tensor.scalar_type() == type));
    CHECK((read[0].tensor.sizes() == at::IntArrayRef{3, 2}));
    CHECK(std::memcmp(read[0].tensor.const_data_ptr(), data.data(), data.size()) == 0);
  }
}

TEST_CASE("Fortran order is read into row-major tensors") {
  const TempDir dir;
  const std::string header = "{'shape': (2, 3), 'fortran_order': True, 'descr': '<i4'}";
  const auto path =
      dir.write("x.npy", npy_bytes(header, bytes_of(std::vector<std::int32_t>{1, 4, 2, 5, 3, 6}), 2));
  const at::Tensor tensor = read_tensors(path).at(0).tensor;
  CHECK(tensor.is_contiguous());
  CHECK(at::equal(tensor, at::arange(1, 7, at::kInt).reshape({2, 3})));
}

TEST_CASE("0-d and zero-size arrays are legal, and a header tells the value of a 0-d integer") {
  const TempDir dir;
  const auto scalar = dir.write("s.npy", npy_array("<i8", "()", bytes_of<std::int64_t>(-3)));
  CHECK((read_header(scalar) == std::vector<TensorEntry>{{"", graph::DType::i64, {}, -3}}));
  CHECK(read_tensors(scalar).at(0).tensor.dim() == 0);
  const auto empty = dir.write("e.npy", npy_array("<f4", "(0, 5)", ""));
  CHECK((read_header(empty) == std::vector<TensorEntry>{{"", graph::DType::f32, {0, 5}, {}}}));
  CHECK((read_tensors(empty).at(0).tensor.sizes() == at::IntArrayRef{0, 5}));
}

TEST_CASE("arrays that are no plain little-endian numbers are refused with the way out") {
  const TempDir dir;
  const std::string eight(8, '\0');
  CHECK(contains(error_of(dir, npy_array(">f4", "(2,)", eight)),
                 "big-endian (dtype '>f4'); convert it with .astype('<f4')"));
  CHECK(contains(error_of(dir, npy_array("|O", "(1,)", eight)), "Python objects"));
  CHECK(contains(error_of(dir, npy_array("<U1", "(2,)", eight)), "no numbers"));
  CHECK(contains(error_of(dir, npy_array("<M8[ns]", "(1,)", eight)), "no numbers"));
  CHECK(contains(
      error_of(dir, npy_bytes("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", eight)),
      "structured"));
}

TEST_CASE("hostile .npy headers are refused") {
  const TempDir dir;
  const std::string four(4, '\0');
  REQUIRE(error_of(dir, npy_array("<f4", "(1,)", four)).empty());
  for (const char* shape : {"(2,)", "(1152921504606846976,)", "(4294967296, 4294967296)",
                            "(0, 9223372036854775807, 4)", "(-1,)"}) {
    CAPTURE(shape);
    CHECK(contains(error_of(dir, npy_array("<f4", shape, four)), "contradict"));
  }
  for (const char* shape : {"(99999999999999999999,)", "(1", "1", "(1,,)", "('a',)"}) {
    CAPTURE(shape);
    CHECK(contains(error_of(dir, npy_array("<f4", shape, four)), "malformed"));
  }
  CHECK(contains(error_of(dir, npy_bytes("{'descr': '<f4', 'shape': (1,)}", four)), "malformed"));
  CHECK(contains(
      error_of(dir,
               npy_bytes("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", four)),
      "malformed"));
  CHECK(contains(error_of(dir, npy_bytes("", four)), "malformed"));
  CHECK(contains(error_of(dir, npy_bytes("{}", four, 9)), "version 9"));
  CHECK(contains(error_of(dir, "hello, world"), "no .npy array"));
  CHECK(contains(error_of(dir, std::string("\x93NUMPY\2\0", 8) + bytes_of<std::uint32_t>(0xffffffff)),
                 "longer than it is"));
  const std::string whole = npy_array("<f4", "(1,)", four);
  for (std::size_t length = 0; length < whole.size(); ++length)
    CHECK_FALSE(error_of(dir, whole.substr(0, length)).empty());
}

TEST_CASE("the arrays of an .npz carry their member's name, stored or deflated") {
  const TempDir dir;
  const std::string ones = bytes_of(std::vector<float>{1, 1});
  for (const bool deflate : {false, true}) {
    const auto path = dir / "x.npz";
    write_zip(path,
              {{"ids.npy", npy_array("<i8", "()", bytes_of<std::int64_t>(5))},
               {"a/b.npy", npy_array("<f4", "(2,)", ones)}},
              deflate);
    const auto read = read_tensors(path);
    REQUIRE(read.size() == 2);
    CHECK(read[0].name == "ids");
    CHECK(read[0].tensor.item<std::int64_t>() == 5);
    CHECK(read[1].name == "a/b");
    CHECK(at::equal(read[1].tensor, at::zeros({2}).add(1)));
    CHECK((read_header(path) ==
           std::vector<TensorEntry>{{"ids", graph::DType::i64, {}, 5}, {"a/b", graph::DType::f32, {2}, {}}}));
  }
}

TEST_CASE("an .npz member that is no array or contradicts its array header is refused") {
  const TempDir dir;
  const auto path = dir / "x.npz";
  write_zip(path, {{"readme.txt", "hi"}});
  CHECK(
      contains(message_of<InputError>([&] { read_tensors(path); }), "member 'readme.txt' is no .npy array"));
  // A deflate bomb: the header claims little, the member inflates to much.
  write_zip(path, {{"a.npy", npy_array("<f4", "(1,)", std::string(10'000'000, '\0'))}}, true);
  CHECK(std::filesystem::file_size(path) < 20'000);
  CHECK(contains(message_of<InputError>([&] { read_tensors(path); }), "contradict"));
  CHECK(contains(message_of<InputError>([&] { read_tensors(dir.write("e.npz", "")); }), "no readable zip"));
}

TEST_CASE("a zip directory that claims more bytes than deflate can make is refused before memory is taken") {
  const TempDir dir;
  const auto path = dir / "x.npz";
  const std::uint64_t claim = std::uint64_t{3} << 30;
  write_zip(path,
            {{"a.npy", npy_array("<f4", "(" + std::to_string(claim / 4) + ",)", std::string(1000, '\0'))}},
            true);
  std::string bytes = read_bytes(path);
  const std::size_t directory = bytes.find("PK\x01\x02");
  REQUIRE(directory != std::string::npos);
  bytes.replace(directory + 24, 4, bytes_of(static_cast<std::uint32_t>(claim)));  // its uncompressed size
  CHECK(contains(message_of<InputError>([&] { read_tensors(dir.write("y.npz", bytes)); }),
                 "claims more bytes than it can have"));
}
