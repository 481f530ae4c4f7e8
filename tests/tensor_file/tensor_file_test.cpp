#include "tensor_file/tensor_file.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include "base_torch/dtype_convert.hpp"
#include "file_builders.hpp"
#include "lowtide/error.hpp"
#include "tensor_file/file_error.hpp"

using namespace lowtide;
using namespace lowtide::tensor_file;
using namespace lowtide::test;

TEST_CASE("tensor files are known by their extension, in either case") {
  for (const char* name : {"a.safetensors", "a.npy", "dir.x/a.npz", "a.b.pt", "A.NPY"})
    CHECK(is_tensor_file(name));
  for (const char* name : {"a.pt2", "a.txt", "a", ".npy", "npy", "a.npy.tmp", ""})
    CHECK_FALSE(is_tensor_file(name));
}

TEST_CASE("missing files, folders, pipes and other extensions are refused by name") {
  const TempDir dir;
  const auto refusal = [&](const std::filesystem::path& path) {
    const std::string message = message_of<InputError>([&] { read_tensors(path); });
    CHECK(contains(message, path.string()));
    return message;
  };
  CHECK(contains(refusal(dir / "none.npy"), "No such file"));
  CHECK(contains(refusal(dir.write("a.txt", "x")), "extension is none of"));
  std::filesystem::create_directory(dir / "folder.npy");
  CHECK(contains(refusal(dir / "folder.npy"), "not a regular file"));
  REQUIRE(::mkfifo((dir / "pipe.npy").c_str(), 0600) == 0);
  CHECK(contains(refusal(dir / "pipe.npy"), "not a regular file"));
}

TEST_CASE("text from files is shown on one line and cut") {
  CHECK(printable("a\nb\x7f\x01") == "a\\x0ab\\x7f\\x01");
  CHECK(printable(std::string(1000, 'x')).size() < 130);
}

TEST_CASE("element types convert to LibTorch's and back") {
  using graph::DType;
  for (const DType type :
       {DType::u8, DType::i8, DType::i16, DType::i32, DType::i64, DType::f16, DType::f32, DType::f64,
        DType::c32, DType::c64, DType::c128, DType::boolean, DType::bf16, DType::u16, DType::f8_e4m3fn,
        DType::f8_e5m2, DType::f8_e4m3fnuz, DType::f8_e5m2fnuz}) {
    CHECK((from_scalar_type(to_scalar_type(type)) == type));
  }
  CHECK((to_scalar_type(DType::bf16) == c10::ScalarType::BFloat16));
  CHECK((from_scalar_type(c10::ScalarType::UInt32) == DType::unknown));
  CHECK_THROWS_AS(to_scalar_type(DType::unknown), ArchiveError);
}

TEST_CASE("layouts and memory formats convert from the schema's numbers") {
  CHECK((layout_from_schema(7) == c10::Layout::Strided));
  CHECK((layout_from_schema(1) == c10::Layout::Sparse));
  CHECK((memory_format_from_schema(1) == c10::MemoryFormat::Contiguous));
  CHECK((memory_format_from_schema(2) == c10::MemoryFormat::ChannelsLast));
  CHECK((memory_format_from_schema(4) == c10::MemoryFormat::Preserve));
  for (const std::int64_t code : {-1, 0, 8}) CHECK_THROWS_AS(layout_from_schema(code), ArchiveError);
  for (const std::int64_t code : {-1, 0, 5}) CHECK_THROWS_AS(memory_format_from_schema(code), ArchiveError);
}
