#include "session/mapped_weights.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base_torch/dtype_convert.hpp"

namespace lowtide::detail {

MappedWeights::MappedWeights(const ModelData& model) : model_(model), bytes_(model.file_bytes()) {
  begin_job();  // before mapping: the file must still be what was checked
  const int fd = ::open(model.path().c_str(), O_RDONLY | O_CLOEXEC);
  void* data = fd < 0 ? MAP_FAILED : ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (data == MAP_FAILED) {
    errno = error;
    memory::fail_with_errno(model.file(), "map", "path and permissions");
  }
  data_ = static_cast<std::byte*>(data);
  for (std::uint32_t f = 0; f < model.weights().files.size(); ++f) {
    if (!model.storage_uses()[f].state) continue;
    state_[f] = at::empty({static_cast<std::int64_t>(model.weights().files[f].bytes)}, at::kByte);
  }
  begin_job();
}

MappedWeights::~MappedWeights() {
  ::munmap(data_, bytes_);
}

at::Tensor MappedWeights::tensor(std::uint32_t index) const {
  const graph::Weight& weight = model_.weights().weights[index];
  const graph::WeightFile& file = model_.weights().files[weight.file];
  const auto own = state_.find(weight.file);
  std::byte* base =
      own == state_.end() ? data_ + file.offset : static_cast<std::byte*>(own->second.mutable_data_ptr());
  base += weight.meta.storage_offset * static_cast<std::int64_t>(graph::element_size(weight.meta.dtype));
  return at::from_blob(base, weight.meta.sizes, weight.meta.strides,
                       at::TensorOptions().dtype(to_scalar_type(weight.meta.dtype)));
}

void MappedWeights::begin_job() {
  memory::check_identity(model_.file());
  for (auto& [file, own] : state_) {
    const graph::WeightFile& source = model_.weights().files[file];
    std::memcpy(own.mutable_data_ptr(), data_ + source.offset, source.bytes);
  }
}

}  // namespace lowtide::detail
