#include "memory/host_slab.hpp"

#include <sys/mman.h>

#include <utility>

#include "lowtide/error.hpp"

namespace lowtide::memory {
namespace {

constexpr Bytes kWorthLargePages = 4_MiB;

}  // namespace

HostSlab HostSlab::pageable(Bytes bytes) {
  HostSlab slab;
  if (bytes == 0) return slab;
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw Error("no host memory for " + format_bytes(bytes) + ": close other programs");
  // A hint: where the system has no large pages to spare, small ones do. They cost a fault and an entry in
  // every direct read each.
  if (bytes >= kWorthLargePages) ::madvise(data, bytes, MADV_HUGEPAGE);
  slab.data_ = static_cast<std::byte*>(data);
  slab.bytes_ = bytes;
  return slab;
}

HostSlab::HostSlab(Bytes bytes, device::DeviceExtras& extras) : HostSlab(pageable(bytes)) {
  extras_ = &extras;
  if (data_ == nullptr) return;
  locked_ = extras.page_lock(data_, bytes);
  if (!locked_) extras.clear_error();  // else the refusal hits the next launch, as if memory were full
}

HostSlab::HostSlab(HostSlab&& other) noexcept
    : extras_(other.extras_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      locked_(std::exchange(other.locked_, false)) {}

HostSlab& HostSlab::operator=(HostSlab&& other) noexcept {
  if (this != &other) {
    free();
    extras_ = other.extras_;
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    locked_ = std::exchange(other.locked_, false);
  }
  return *this;
}

HostSlab::~HostSlab() {
  free();
}

void HostSlab::free() noexcept {
  if (data_ == nullptr) return;
  if (locked_) extras_->page_unlock(data_);
  ::munmap(data_, bytes_);
  data_ = nullptr;
}

}  // namespace lowtide::memory
