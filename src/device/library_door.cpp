#include "device/library_door.hpp"

#include <dlfcn.h>

#include <filesystem>

namespace lowtide::device {
namespace {

/// The folder of the library or program this code is in.
std::filesystem::path own_folder() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0 || info.dli_fname == nullptr)
    return {};
  std::error_code ignored;
  return std::filesystem::weakly_canonical(info.dli_fname, ignored).parent_path();
}

/// Empty where there is none.
std::filesystem::path find_library(const std::string& file) {
  const std::filesystem::path here = own_folder();
  for (const auto& folder : {here, here / ".." / "lib"}) {
    std::error_code ignored;
    if (std::filesystem::exists(folder / file, ignored)) return folder / file;
  }
  return {};
}

}  // namespace

bool has_library(const std::string& file) {
  return !find_library(file).empty();
}

void* library_door(const std::string& file, const char* door, std::string& reason) {
  reason.clear();
  const std::filesystem::path path = find_library(file);
  if (path.empty()) return nullptr;
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  void* function = library != nullptr ? ::dlsym(library, door) : nullptr;
  if (library == nullptr) {
    reason = ::dlerror();
  } else if (function == nullptr) {
    reason = "it is of another version";
  }
  return function;
}

}  // namespace lowtide::device
