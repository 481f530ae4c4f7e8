#include "lowtide/output_files.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <stdexcept>

#include "../tensor_file/temp_dir.hpp"
#include "lowtide/error.hpp"

using namespace lowtide;
using namespace lowtide::app;
using namespace lowtide::test;
namespace fs = std::filesystem;

namespace {

void put(const fs::path& path, const std::string& text) {
  std::ofstream(path) << text;
}

std::size_t files_below(const fs::path& dir) {
  std::size_t count = 0;
  for (const auto& entry : fs::recursive_directory_iterator(dir)) count += entry.is_regular_file();
  return count;
}

}  // namespace

TEST_CASE("a result appears under its name when it is whole, in folders made for it") {
  const TempDir dir;
  const fs::path target = dir / "out/x/a.safetensors";
  write_atomically(dir / "out", "x/a.safetensors", [&](const fs::path& temporary) {
    CHECK(temporary.parent_path() == target.parent_path());
    CHECK(temporary.filename().string().starts_with(".lowtide-"));
    CHECK(temporary.extension() == ".tmp");
    put(temporary, "whole");
    CHECK_FALSE(fs::exists(target));
  });
  CHECK(read_bytes(target) == "whole");
  CHECK(files_below(dir.path()) == 1);
}

TEST_CASE("a failing writer leaves the earlier result and no temporary") {
  const TempDir dir;
  dir.write("a.npy", "earlier");
  const auto write = [&] {
    write_atomically(dir.path(), "a.npy", [](const fs::path& temporary) {
      put(temporary, "half");
      throw std::runtime_error("stop");
    });
  };
  CHECK(message_of<std::runtime_error>(write) == "stop");
  CHECK(read_bytes(dir / "a.npy") == "earlier");
  CHECK(files_below(dir.path()) == 1);
}

TEST_CASE("a disk that does not play along gives one line that names the path") {
  const TempDir dir;
  dir.write("file", "x");
  fs::create_directories(dir / "folder/inside");
  const auto write_to = [&](const char* name) {
    return message_of<Error>(
        [&] { write_atomically(dir.path(), name, [](const fs::path& to) { put(to, "x"); }); });
  };
  CHECK(contains(write_to("file/a.npy"), (dir / "file").string()));
  CHECK(contains(write_to("folder"), "directory"));
  CHECK(contains(message_of<Error>([&] { write_atomically(dir.path(), "a", [](const fs::path&) {}); }),
                 "cannot write"));
  CHECK(files_below(dir.path()) == 1);
}

TEST_CASE("results stay inside the output folder") {
  const TempDir dir;
  for (const std::string& name :
       {std::string("../x"), std::string("a/../../x"), std::string("/tmp/x"), std::string(), std::string("."),
        std::string("a/"), std::string("a\0b", 3), std::string(".lowtide-1-2.tmp")}) {
    CAPTURE(name);
    CHECK_FALSE(output_path_problem(name).empty());
    CHECK_THROWS_AS(resolve_output(dir.path(), name), InputError);
  }
  CHECK(resolve_output("out", "a/./b.npy") == fs::path("out/a/b.npy"));
  CHECK(resolve_output("out", "..a") == fs::path("out/..a"));
}

TEST_CASE("temporaries of killed runs are removed, those of running processes and other files stay") {
  const TempDir dir;
  constexpr const char* kNobody = "2147483646";  // above the highest process id of Linux
  dir.write(std::string(".lowtide-") + kNobody + "-0.tmp");
  dir.write(std::string("x/.lowtide-") + kNobody + "-7.tmp");
  dir.write(".lowtide-" + std::to_string(::getpid()) + "-0.tmp");  // of an earlier process with our number
  const fs::path running = dir.write(".lowtide-" + std::to_string(::getppid()) + "-0.tmp");
  const fs::path other = dir.write(".lowtide-notes.tmp");
  CHECK(remove_stray_temporaries(dir.path()) == 3);
  CHECK(fs::exists(running));
  CHECK(fs::exists(other));
  CHECK(remove_stray_temporaries(dir / "none") == 0);
}
