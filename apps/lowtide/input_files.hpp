// From the files and folders of the command line to jobs: which files are read, in which order, and what
// their results are called.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace lowtide::app {

struct JobInput {
  std::string id;                // "x/a.npy": folder of the output, name of the input; unique in the batch
  std::filesystem::path path;    // as given, or found below a folder as given
  std::filesystem::path output;  // "x/a.safetensors": relative to the output folder; unique in the batch

  bool operator==(const JobInput&) const = default;
};

struct InputSet {
  std::vector<JobInput> jobs;
  std::size_t ignored = 0;  // files in folders that are no tensor files
};

/// Files become jobs whatever their type (a wrong one fails when it is read, without ending the batch).
/// Folders are read with their subfolders, names in byte order, each folder once however many links lead to
/// it; `out_dir` is left out, so that a rerun does not take results for inputs. A file named twice is one
/// job.
///
/// Outputs are called after the input's stem. Equal stems keep their path below the folder they were given
/// by, and where that is equal too, below their common folder. Throws UsageError: no such file, unreadable
/// folder, no inputs found, two files that differ only in extension, an output that would overwrite an input.
InputSet collect_inputs(std::span<const std::filesystem::path> arguments,
                        const std::filesystem::path& out_dir);

}  // namespace lowtide::app
