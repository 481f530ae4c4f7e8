#include "lowtide/input_files.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "../tensor_file/temp_dir.hpp"
#include "lowtide/error.hpp"

using namespace lowtide;
using namespace lowtide::app;
using namespace lowtide::test;
namespace fs = std::filesystem;

namespace {

InputSet collect(const std::vector<fs::path>& arguments, const fs::path& out_dir = "/nowhere/out") {
  return collect_inputs(arguments, out_dir);
}

std::vector<std::string> ids(const InputSet& set) {
  std::vector<std::string> found;
  for (const JobInput& job : set.jobs) found.push_back(job.id);
  return found;
}

std::vector<std::string> outputs(const InputSet& set) {
  std::vector<std::string> found;
  for (const JobInput& job : set.jobs) found.push_back(job.output.string());
  return found;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("files keep the order of the command line and give results of the same stem") {
  const TempDir dir;
  const InputSet set = collect({dir.write("b.npy"), dir.write("a.tar.npz"), dir.write("c.safetensors")});
  CHECK(ids(set) == Names{"b.npy", "a.tar.npz", "c.safetensors"});
  CHECK(outputs(set) == Names{"b.safetensors", "a.tar.safetensors", "c.safetensors"});
  CHECK(set.jobs[0].path == dir / "b.npy");
  CHECK(set.ignored == 0);
}

TEST_CASE("folders are read with their subfolders in byte order, other files are counted") {
  const TempDir dir;
  for (const char* name : {"in/b.npy", "in/a/z.pt", "in/B.NPZ", "in/notes.txt", "in/a/.hidden",
                           "in/c.safetensors", "in/c1.npy"}) {
    dir.write(name);
  }
  const InputSet set = collect({dir / "in"});
  CHECK(ids(set) == Names{"B.NPZ", "z.pt", "b.npy", "c.safetensors", "c1.npy"});
  CHECK(set.ignored == 2);
}

TEST_CASE("equal stems keep their path below the folder they were given by") {
  const TempDir dir;
  for (const char* name : {"in/a.npy", "in/x/a.npy", "in/y/a.pt", "in/y/b.npy"}) dir.write(name);
  const InputSet set = collect({dir / "in"});
  CHECK(outputs(set) == Names{"a.safetensors", "x/a.safetensors", "y/a.safetensors", "b.safetensors"});
  CHECK(ids(set) == Names{"a.npy", "x/a.npy", "y/a.pt", "b.npy"});
}

TEST_CASE("equal stems of several arguments keep their path below the folder they have in common") {
  const TempDir dir;
  for (const char* name : {"p/in/a.npy", "q/in/a.npy", "r/a.npy"}) dir.write(name);
  const InputSet set = collect({dir / "p/in", dir / "q/in", dir / "r/a.npy"});
  CHECK(outputs(set) == Names{"p/in/a.safetensors", "q/in/a.safetensors", "r/a.safetensors"});
}

TEST_CASE("two inputs that differ only in extension are refused, both named") {
  const TempDir dir;
  dir.write("in/a.npy");
  dir.write("in/a.npz");
  const std::string message = message_of<UsageError>([&] { collect({dir / "in"}); });
  CHECK(contains(message, (dir / "in/a.npy").string()));
  CHECK(contains(message, (dir / "in/a.npz").string()));
}

TEST_CASE("a file named twice, also through its folder, is one job") {
  const TempDir dir;
  dir.write("in/a.npy");
  CHECK(ids(collect({dir / "in/a.npy", dir / "in", dir / "in/../in/a.npy"})) == Names{"a.npy"});
}

TEST_CASE("a named file of another type is a job: it fails when it is read, not before") {
  const TempDir dir;
  CHECK(ids(collect({dir.write("a.txt")})) == Names{"a.txt"});
}

TEST_CASE("missing inputs and folders without inputs are wrong usage") {
  const TempDir dir;
  dir.write("in/notes.txt");
  CHECK(contains(message_of<UsageError>([&] { collect({dir / "none.npy"}); }), "none.npy' does not exist"));
  CHECK(contains(message_of<UsageError>([&] { collect({dir / "in"}); }),
                 "no inputs found in '" + (dir / "in").string() + "'"));
  CHECK(contains(message_of<UsageError>([&] { collect({}); }), "no inputs found"));
}

TEST_CASE("links that form a loop are read once, dangling links are ignored") {
  const TempDir dir;
  dir.write("in/x/a.npy");
  fs::create_directory_symlink(dir / "in", dir / "in/x/loop");
  fs::create_directory_symlink("x", dir / "in/y");
  fs::create_symlink("nowhere", dir / "in/z.npy");
  const InputSet set = collect({dir / "in"});
  CHECK(ids(set) == Names{"a.npy"});
  CHECK(set.ignored == 1);
}

TEST_CASE("results of an earlier run below an input folder are not inputs, unless that folder is named") {
  const TempDir dir;
  dir.write("in/a.npy");
  dir.write("in/out/a.safetensors");
  CHECK(ids(collect({dir / "in"}, dir / "in/out")) == Names{"a.npy"});
  dir.write("work/a.npy");
  CHECK(ids(collect({dir / "work"}, dir / "work")) == Names{"a.npy"});
}

TEST_CASE("a result that would overwrite an input is wrong usage") {
  const TempDir dir;
  const fs::path input = dir.write("in/a.safetensors");
  CHECK(contains(message_of<UsageError>([&] { collect({input}, dir / "in"); }), "overwrite the input"));
  fs::create_directory_symlink("in", dir / "link");
  CHECK(contains(message_of<UsageError>([&] { collect({input}, dir / "link"); }), "overwrite the input"));
}
