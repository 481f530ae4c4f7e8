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
/// Large enough that page locks, slow calls, are few; small enough that a refused one is not everything.
constexpr Bytes kSlabBytes = 64 * 1024 * 1024;

Bytes aligned(Bytes unit_bytes) {
  return round_up(unit_bytes, unit_bytes >= kUnitAlignment ? kUnitAlignment : 64);
}

}  // namespace

HostStore::HostStore(const std::filesystem::path& archive, const graph::WeightTable& weights,
                     const plan::Packing& packing, std::span<const std::uint32_t> tables,
                     device::DeviceExtras& extras, Bytes pin_budget)
    : places_(weights.files.size(), nullptr) {
  const std::vector<std::byte*> units = take_memory(packing, extras, pin_budget);
  const File file(archive);
  const auto read = [&](std::uint32_t storage, std::byte* to) {
    places_[storage] = to;
    file.read(to, weights.files[storage].bytes, weights.files[storage].offset);
  };
  for (std::size_t id = 0; id < packing.units.size(); ++id) {
    for (const plan::PackedStorage& piece : packing.content[id])
      read(piece.storage, units[id] + piece.offset);
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

/// Where each unit begins.
std::vector<std::byte*> HostStore::take_memory(const plan::Packing& packing, device::DeviceExtras& extras,
                                               Bytes pin_budget) {
  std::vector<std::byte*> units;
  Bytes total = 0, locked_bytes = 0;
  bool refused = false;
  for (std::size_t begin = 0; begin < packing.units.size();) {
    Bytes bytes = 0;
    std::size_t end = begin;
    while (end < packing.units.size() &&
           (end == begin || bytes + aligned(packing.units[end].bytes) <= kSlabBytes))
      bytes += aligned(packing.units[end++].bytes);
    const bool lock = !refused && locked_bytes + bytes <= pin_budget;
    slabs_.push_back(lock ? memory::HostSlab(bytes, extras) : memory::HostSlab::pageable(bytes));
    refused = refused || (lock && !slabs_.back().locked());
    total += bytes;
    if (slabs_.back().locked()) locked_bytes += bytes;
    std::byte* place = slabs_.back().data();
    for (; begin < end; ++begin) {
      units.push_back(place);
      place += aligned(packing.units[begin].bytes);
    }
  }
  if (locked_bytes < total)
    log_message(
        LogLevel::warning,
        (refused ? "the system refused to page-lock " : "the pin budget leaves out ") +
            format_bytes(total - locked_bytes) + " of " + format_bytes(total) +
            " of weights: they are copied through page-locked pieces, which takes the host's time; " +
            (refused ? "raise the limit (ulimit -l) or close other programs" : "close other programs"));
  return units;
}

bool HostStore::locked(const std::byte* place) const {
  return std::any_of(slabs_.begin(), slabs_.end(), [&](const memory::HostSlab& slab) {
    return slab.locked() && slab.data() <= place && place < slab.data() + slab.bytes();
  });
}

std::span<const std::byte> HostStore::unit(const plan::Packing& packing, plan::UnitId id) const {
  const plan::PackedStorage& first = packing.content[id].front();
  return {places_[first.storage] + first.begin - first.offset, packing.units[id].bytes};
}

}  // namespace lowtide::residency
