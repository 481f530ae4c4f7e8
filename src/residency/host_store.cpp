#include "residency/host_store.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/checked_math.hpp"
#include "lowtide/error.hpp"
#include "lowtide/log.hpp"

namespace lowtide::residency {
namespace {

/// A file that closes itself.
class File {
 public:
  explicit File(const std::filesystem::path& path)
      : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ < 0)
      throw ArchiveError("cannot open '" + path.string() + "': " + std::strerror(errno) +
                         "; check path and permissions");
  }
  ~File() { ::close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  void read(std::byte* to, Bytes size, Bytes offset) const {
    while (size > 0) {
      const ssize_t got = ::pread(fd_, to, std::min<Bytes>(size, Bytes{1} << 30), static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0)
        throw ArchiveError("cannot read '" + path_.string() + "': " + std::strerror(errno) +
                           "; check the disk");
      if (got == 0)
        throw ArchiveError("'" + path_.string() +
                           "' became shorter while it was read; export or copy it again");
      to += got;
      offset += static_cast<Bytes>(got);
      size -= static_cast<Bytes>(got);
    }
  }

 private:
  std::filesystem::path path_;
  int fd_;
};

/// Units start at page boundaries: page locks and direct reads work in pages.
constexpr Bytes kUnitAlignment = 4096;

}  // namespace

HostStore::HostStore(const std::filesystem::path& archive, const graph::WeightTable& weights,
                     const plan::Packing& packing, std::span<const std::uint32_t> tables,
                     device::DeviceExtras& extras)
    : places_(weights.files.size(), nullptr) {
  std::vector<Bytes> offsets;
  Bytes total = 0;
  for (const plan::Unit& unit : packing.units) {
    offsets.push_back(total);
    total += unit.bytes >= kUnitAlignment ? round_up(unit.bytes, kUnitAlignment) : round_up(unit.bytes, 64);
  }
  slab_ = memory::HostSlab(total, extras);
  if (total > 0 && !slab_.locked())
    log_message(LogLevel::warning, "the system refused to page-lock " + format_bytes(total) +
                                       " of weights: they are copied from pageable memory, which is slower; "
                                       "raise the limit (ulimit -l) or close other programs");
  const File file(archive);
  const auto read = [&](std::uint32_t storage, std::byte* to) {
    places_[storage] = to;
    file.read(to, weights.files[storage].bytes, weights.files[storage].offset);
  };
  for (std::size_t id = 0; id < packing.units.size(); ++id) {
    for (const plan::PackedStorage& piece : packing.content[id])
      read(piece.storage, slab_.data() + offsets[id] + piece.offset);
  }
  Bytes only_host = 0;
  for (const std::uint32_t table : tables) {
    if (places_[table] == nullptr) only_host += round_up(weights.files[table].bytes, 64);
  }
  tables_ = memory::HostSlab::pageable(only_host);
  Bytes offset = 0;
  for (const std::uint32_t table : tables) {
    if (places_[table] != nullptr) continue;  // also read on the device: one copy serves both
    read(table, tables_.data() + offset);
    offset += round_up(weights.files[table].bytes, 64);
  }
}

std::span<const std::byte> HostStore::unit(const plan::Packing& packing, plan::UnitId id) const {
  const plan::PackedStorage& first = packing.content[id].front();
  return {places_[first.storage] + first.begin - first.offset, packing.units[id].bytes};
}

}  // namespace lowtide::residency
