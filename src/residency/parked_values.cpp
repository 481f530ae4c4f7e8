#include "residency/parked_values.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <map>

namespace lowtide::residency {
namespace {

bool lies_in(const at::Tensor& tensor, const at::Tensor& slab) {
  if (!slab.defined()) return false;
  const auto* data = static_cast<const std::byte*>(tensor.const_data_ptr());
  const auto* begin = static_cast<const std::byte*>(slab.const_data_ptr());
  return data >= begin && data < begin + slab.nbytes();
}

}  // namespace

void ParkedValues::park(std::vector<at::Tensor> tensors, const at::Tensor& stays,
                        const device::Device& device, memory::Staging& staging) {
  for (Storage& storage : storages_) pool_.push_back(std::move(storage.room));
  storages_.clear();
  tensors_.clear();
  std::map<c10::StorageImpl*, std::size_t> known;
  for (at::Tensor& tensor : tensors) {
    View view;
    if (!tensor.defined() || tensor.device() != device.torch() || lies_in(tensor, stays)) {
      view.kept = std::move(tensor);
      tensors_.push_back(std::move(view));
      continue;
    }
    const auto [entry, fresh] = known.try_emplace(tensor.storage().unsafeGetStorageImpl(), storages_.size());
    if (fresh) {
      const auto bytes = static_cast<std::int64_t>(tensor.storage().nbytes());
      const at::Tensor raw =
          at::empty({0}, tensor.options().dtype(at::kByte)).set_(tensor.storage(), 0, {bytes}, {1});
      const at::Tensor room = take_room(bytes, staging);
      if (bytes > 0) {
        device.extras()->note_copy(/*to_device=*/false, static_cast<Bytes>(bytes));
        room.narrow(0, 0, bytes).copy_(raw, /*non_blocking=*/true);
      }
      storages_.push_back({room, bytes});
    }
    view.storage = entry->second;
    view.dtype = tensor.scalar_type();
    view.sizes = tensor.sizes().vec();
    view.strides = tensor.strides().vec();
    view.offset = tensor.storage_offset();
    tensors_.push_back(std::move(view));
  }
}

/// The smallest room of an earlier round that is large enough, or a new one.
at::Tensor ParkedValues::take_room(std::int64_t bytes, memory::Staging& staging) {
  auto best = pool_.end();
  for (auto room = pool_.begin(); room != pool_.end(); ++room) {
    if (room->numel() >= bytes && (best == pool_.end() || room->numel() < best->numel())) best = room;
  }
  if (best == pool_.end())
    return at::from_blob(staging.take(static_cast<Bytes>(bytes)), {bytes},
                         at::TensorOptions().dtype(at::kByte));
  at::Tensor room = std::move(*best);
  pool_.erase(best);
  return room;
}

std::vector<at::Tensor> ParkedValues::restore(const device::Device& device) {
  std::vector<at::Tensor> storages;
  for (const Storage& storage : storages_) {
    storages.push_back(at::empty({storage.bytes}, storage.room.options().device(device.torch())));
    if (storage.bytes == 0) continue;
    device.extras()->note_copy(/*to_device=*/true, static_cast<Bytes>(storage.bytes));
    storages.back().copy_(storage.room.narrow(0, 0, storage.bytes), /*non_blocking=*/true);
  }
  std::vector<at::Tensor> tensors;
  for (const View& view : tensors_) {
    if (view.storage == SIZE_MAX) {
      tensors.push_back(view.kept);
    } else {
      const auto options = at::TensorOptions().dtype(view.dtype).device(device.torch());
      tensors.push_back(at::empty({0}, options)
                            .set_(storages[view.storage].storage(), view.offset, view.sizes, view.strides));
    }
  }
  return tensors;
}

}  // namespace lowtide::residency
