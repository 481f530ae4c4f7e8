// Results on disk: written whole or not at all, never outside the output folder.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>

namespace lowtide::app {

/// Why `relative` may not name a result (empty, absolute, leads out of the folder with "..", names a folder);
/// empty when it may.
std::string output_path_problem(const std::filesystem::path& relative);

/// `dir`/`relative`, normalised. Throws InputError when output_path_problem() has something to say.
std::filesystem::path resolve_output(const std::filesystem::path& dir, const std::filesystem::path& relative);

/// Calls `write` with the name of a temporary beside the target, then moves it in place: after a crash at any
/// moment the target is the old file, the new file, or absent. Creates missing folders. When `write` throws,
/// the temporary is removed and the exception goes on; when the disk does not play along, Error. Several
/// threads may write different targets at once.
void write_atomically(const std::filesystem::path& dir, const std::filesystem::path& relative,
                      const std::function<void(const std::filesystem::path&)>& write);

/// Removes the temporaries that killed runs left in `dir` and its subfolders; those of processes that still
/// run stay. Call before the first write. Returns how many it removed. Never throws for files it cannot
/// remove.
std::size_t remove_stray_temporaries(const std::filesystem::path& dir);

}  // namespace lowtide::app
