// Files whose bytes were flipped, cut and repeated at random: each is read or refused, nothing else.
#include <ATen/ops/arange.h>
#include <ATen/ops/scalar_tensor.h>
#include <doctest/doctest.h>

#include <functional>
#include <random>

#include "file_builders.hpp"
#include "lowtide/error.hpp"
#include "tensor_file/tensor_file.hpp"

using namespace lowtide;
using namespace lowtide::tensor_file;
using namespace lowtide::test;

namespace {

constexpr int kRounds = 2000;

std::string damage(std::string bytes, std::mt19937& random) {
  const auto below = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  const std::size_t flips = 1 + below(4);
  for (std::size_t i = 0; i < flips; ++i) bytes[below(bytes.size())] ^= static_cast<char>(1 << below(8));
  if (below(8) == 0) bytes.resize(1 + below(bytes.size()));
  if (below(8) == 0) bytes.insert(below(bytes.size()), bytes.substr(below(bytes.size()), below(64)));
  return bytes;
}

/// Returns how many of the damaged files were refused.
int read_damaged(const TempDir& dir, const std::filesystem::path& path) {
  const std::string whole = read_bytes(path);
  const auto damaged = dir / ("damaged" + path.extension().string());
  const auto refused = [](const std::function<void()>& read) {
    try {
      read();
      return false;
    } catch (const InputError& error) {
      return !contains(error.what(), "\n");
    }
  };
  std::mt19937 random(7);
  int count = 0;
  REQUIRE_NOTHROW(read_tensors(path));
  for (int round = 0; round < kRounds; ++round) {
    CAPTURE(round);
    dir.write(damaged.filename(), damage(whole, random));
    bool tensors_refused = false;
    CHECK_NOTHROW(tensors_refused = refused([&] {
                    for (const auto& [name, tensor] : read_tensors(damaged))
                      CHECK(tensor.nbytes() <= 2 * whole.size());
                  }));
    CHECK_NOTHROW(refused([&] { read_header(damaged); }));
    count += tensors_refused;
  }
  return count;
}

}  // namespace

TEST_CASE("2,000 damaged safetensors files are read or refused") {
  const TempDir dir;
  const auto path = dir / "x.safetensors";
  write_safetensors(path,
                    std::vector<NamedTensor>{{"a", at::arange(6, at::kFloat).reshape({2, 3})},
                                             {"b", at::scalar_tensor(3, at::kLong)},
                                             {"c", at::arange(2).to(at::kBool)}},
                    {{"names", "[]"}});
  CHECK(read_damaged(dir, path) > kRounds / 2);
}

TEST_CASE("2,000 damaged .npy files are read or refused") {
  const TempDir dir;
  CHECK(read_damaged(dir, dir.write("x.npy", npy_array("<i4", "(2, 3)", std::string(24, '\1')))) >
        kRounds / 2);
}

TEST_CASE("2,000 damaged .npz files are read or refused") {
  const TempDir dir;
  const Members members{{"a.npy", npy_array("<i8", "(2, 3)", std::string(48, '\1'))},
                        {"b.npy", npy_array("|b1", "()", "\1")}};
  for (const bool deflate : {false, true}) {
    write_zip(dir / "x.npz", members, deflate);
    CHECK(read_damaged(dir, dir / "x.npz") > kRounds / 2);
  }
}

TEST_CASE("2,000 damaged .pt files are read or refused") {
  const TempDir dir;
  const auto path = dir / "x.pt";
  write_pt(path,
           pickled::dict({{"a", pickled::tensor("FloatStorage", "0", 0, {3, 2}, {1, 3})},
                          {"b", pickled::tensor("LongStorage", "1", 1, {}, {})}}),
           {{"0", std::string(24, '\1')}, {"1", std::string(16, '\2')}});
  CHECK(read_damaged(dir, path) > kRounds / 2);
}

TEST_CASE("2,000 damaged pickles inside a sound zip are read or refused") {
  const TempDir dir;
  const std::string sound =
      pickled::program(pickled::dict({{"a", pickled::tensor("FloatStorage", "0", 0, {3, 2}, {1, 3})},
                                      {"b", pickled::tensor("LongStorage", "1", 1, {}, {})}}));
  std::mt19937 random(7);
  int refused = 0;
  for (int round = 0; round < kRounds; ++round) {
    CAPTURE(round);
    write_zip(dir / "x.pt", {{"r/data.pkl", damage(sound, random)},
                             {"r/data/0", std::string(24, '\1')},
                             {"r/data/1", std::string(16, '\2')}});
    bool threw = false;
    CHECK_NOTHROW(threw = !message_of<InputError>([&] { read_tensors(dir / "x.pt"); }).empty());
    CHECK_NOTHROW(message_of<InputError>([&] { read_header(dir / "x.pt"); }));
    refused += threw;
  }
  CHECK(refused > kRounds / 4);
}
