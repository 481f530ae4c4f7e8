#include "session/pattern_store.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "support/program.hpp"

using lowtide::detail::PatternStore;
using lowtide::memory::RequestTrace;
using lowtide::test::TempFolder;

namespace {

RequestTrace some_run() {
  RequestTrace trace;
  trace.requests = {{1024, 2}, {512, 3}, {2048, 3}};
  trace.visits = {{7, 0}, {std::uint64_t{3} << 40, 2}};
  return trace;
}

std::filesystem::path only_file(const std::filesystem::path& folder) {
  return std::filesystem::directory_iterator(folder)->path();
}

std::string content(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void write(const std::filesystem::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary) << text;
}

}  // namespace

TEST_CASE("a run comes back as it was written, in another process as well") {
  const TempFolder folder;
  PatternStore((folder / "runs").string()).put("a key", some_run());
  const auto found = PatternStore((folder / "runs").string()).find("a key");
  REQUIRE(found);
  REQUIRE(found->requests.size() == 3);
  CHECK(found->requests[2].bytes == 2048);
  CHECK(found->requests[2].until == 3);
  REQUIRE(found->visits.size() == 2);
  CHECK(found->visits[1].id == std::uint64_t{3} << 40);
  CHECK(found->visits[1].first == 2);
}

TEST_CASE("a file is only believed for the key that it holds") {
  const TempFolder folder;
  const PatternStore store((folder / "runs").string());
  store.put("a key", some_run());
  const auto file = only_file(folder / "runs");
  const std::string text = content(file);
  store.put("another key", some_run());
  for (const auto& entry : std::filesystem::directory_iterator(folder / "runs")) write(entry.path(), text);
  CHECK(store.find("a key"));
  CHECK_FALSE(store.find("another key"));
}

TEST_CASE("a damaged file is one that was never written") {
  const TempFolder folder;
  const PatternStore store((folder / "runs").string());
  store.put("a key", some_run());
  const auto file = only_file(folder / "runs");
  const std::string good = content(file);
  for (std::size_t cut = 0; cut < good.size(); ++cut) {
    write(file, good.substr(0, cut));
    CHECK_FALSE(store.find("a key"));
  }
  write(file, good + "x");
  CHECK_FALSE(store.find("a key"));
  for (std::size_t at = 0; at < good.size(); ++at) {  // never a crash, a hang or a terabyte
    for (const char flip : {'\x01', '\x80', '\xff'}) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ flip);
      write(file, bad);
      CHECK_FALSE(store.find("a key"));
    }
  }
  write(file, good);
  CHECK(store.find("a key"));
}

TEST_CASE("what is no file of a sane size is not read") {
  const TempFolder folder;
  const PatternStore store((folder / "runs").string());
  store.put("a key", some_run());
  const auto file = only_file(folder / "runs");
  std::filesystem::resize_file(file, std::uintmax_t{1} << 40);  // sparse
  CHECK_FALSE(store.find("a key"));
  std::filesystem::remove(file);
  REQUIRE(::mkfifo(file.c_str(), 0600) == 0);  // nobody writes to it
  CHECK_FALSE(store.find("a key"));
  std::filesystem::remove(file);
  std::filesystem::create_directory(file);
  CHECK_FALSE(store.find("a key"));
}

TEST_CASE("a run that is dropped is not found again") {
  const TempFolder folder;
  const PatternStore store((folder / "runs").string());
  store.put("a key", some_run());
  store.drop("a key");
  CHECK_FALSE(store.find("a key"));
  store.drop("a key");
}

TEST_CASE("a folder that cannot be written, or none at all, only means that nothing is remembered") {
  const TempFolder folder;
  write(folder / "file", "");
  for (const std::string& place : {std::string(), (folder / "file").string()}) {
    const PatternStore store(place);
    store.put("a key", some_run());
    CHECK_FALSE(store.find("a key"));
  }
}

TEST_CASE("the oldest files go when there are too many") {
  const TempFolder folder;
  const PatternStore store((folder / "runs").string());
  for (std::size_t i = 0; i < PatternStore::kMostFiles + 20; ++i) store.put(std::to_string(i), some_run());
  const auto files = std::distance(std::filesystem::directory_iterator(folder / "runs"),
                                   std::filesystem::directory_iterator());
  CHECK(files == PatternStore::kMostFiles);
  CHECK(store.find(std::to_string(PatternStore::kMostFiles + 19)));
}
