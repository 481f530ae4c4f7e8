#include "device/sim/tensor_alias.hpp"

#include <c10/core/InferenceMode.h>

#include <cstring>
#include <utility>

#include "device/sim/allocators.hpp"

namespace lowtide::device::sim {
namespace {

/// Properties that live in the key set and not in the bytes: a lazily conjugated tensor stays one on the
/// other side.
constexpr c10::DispatchKeySet kContentKeys({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});

c10::Storage borrow_storage(const c10::Storage& card) {
  const c10::StorageImpl& impl = *card.unsafeGetStorageImpl();
  // Its allocator is asked when the kernel resizes the alias; write_back() then hands the new memory to the
  // card's storage.
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), impl.nbytes(),
      c10::DataPtr(const_cast<void*>(impl.data()), c10::Device(c10::kCPU)), &routing_cpu_allocator(),
      impl.resizable()));
}

/// Without autograd keys and version counter, since nothing looks at them below the operator's own dispatch;
/// but requires_grad is carried over, because kernels choose by it (matmul folds batches only for weights
/// that require it).
at::Tensor make_cpu_alias(const c10::Storage& storage, const at::Tensor& like) {
  const c10::DispatchKeySet keys =
      c10::DispatchKeySet(c10::DispatchKey::CPU) | (like.key_set() & kContentKeys);
  at::Tensor alias;
  if (like.requires_grad()) {
    const c10::InferenceMode as_the_original(like.is_inference());
    alias = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), keys, like.dtype());
    alias.unsafeGetTensorImpl()->set_requires_grad(true);
  } else {
    alias = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(storage), keys,
                                                     like.dtype());
  }
  alias.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  return alias;
}

void copy_shape(const at::Tensor& from, const at::Tensor& to) {
  if (from.sizes() != to.sizes() || from.strides() != to.strides() ||
      from.storage_offset() != to.storage_offset()) {
    to.unsafeGetTensorImpl()->set_sizes_and_strides(from.sizes(), from.strides(), from.storage_offset());
  }
}

/// Card storage from a result's CPU storage. The kernel's memory is the card's already and only changes its
/// owner; memory that came from elsewhere (a constant that the kernel hands out) is copied in, so that it is
/// accounted for.
c10::Storage take_over(c10::StorageImpl& cpu) {
  const std::size_t bytes = cpu.nbytes();
  c10::DataPtr data;
  if (bytes != 0 && sim_card().memory().owns(cpu.data())) {
    if (c10::raw::intrusive_ptr::use_count(&cpu) == 1) {
      data = cpu.set_data_ptr(c10::DataPtr(nullptr, c10::Device(c10::kCPU)));
      data.unsafe_set_device(sim_device());
    } else {  // several results share it, or the kernel keeps a reference: it lives as long as the last of
              // them
      auto* shared = new c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(&cpu));
      data = {cpu.mutable_data(), shared, [](void* storage) { delete static_cast<c10::Storage*>(storage); },
              sim_device()};
    }
  } else {
    data = card_allocator().allocate(bytes);
    if (bytes != 0) std::memcpy(data.get(), cpu.data(), bytes);
  }
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, std::move(data), &card_allocator(), /*resizable=*/true));
}

}  // namespace

const AliasScope::StoragePair& AliasScope::storage_down(const at::Tensor& card) {
  for (const StoragePair& pair : storages_) {
    if (pair.card.unsafeGetStorageImpl() == card.storage().unsafeGetStorageImpl()) return pair;
  }
  storages_.push_back({borrow_storage(card.storage()), card.storage(), card.key_set(), true});
  return storages_.back();
}

at::Tensor AliasScope::down(const at::Tensor& card) {
  for (const TensorPair& pair : arguments_) {
    if (pair.card.is_same(card)) return pair.cpu;
  }
  at::Tensor alias = make_cpu_alias(storage_down(card).cpu, card);
  if (card.unsafeGetTensorImpl()->is_wrapped_number()) alias.unsafeGetTensorImpl()->set_wrapped_number(true);
  requires_grad_ = requires_grad_ || alias.requires_grad();
  arguments_.push_back({alias, card});
  return alias;
}

const AliasScope::StoragePair* AliasScope::find_cpu(const c10::StorageImpl* cpu) const {
  for (const StoragePair& pair : storages_) {
    if (pair.cpu.unsafeGetStorageImpl() == cpu) return &pair;
  }
  return nullptr;
}

bool AliasScope::shares_argument(const at::Tensor& cpu) const {
  if (!cpu.has_storage()) return false;
  const StoragePair* pair = find_cpu(cpu.storage().unsafeGetStorageImpl());
  return pair != nullptr && pair->argument;
}

const AliasScope::StoragePair& AliasScope::storage_up(const at::Tensor& cpu) {
  c10::StorageImpl* impl = cpu.storage().unsafeGetStorageImpl();
  if (const StoragePair* known = find_cpu(impl)) return *known;
  c10::Storage card = take_over(*impl);
  storages_.push_back({cpu.storage(), std::move(card), c10::DispatchKeySet(kSimKey), false});
  return storages_.back();
}

at::Tensor AliasScope::up(const at::Tensor& cpu) {
  if (!cpu.defined() || !cpu.device().is_cpu()) return cpu;
  for (const TensorPair& pair : arguments_) {
    if (pair.cpu.is_same(cpu)) return pair.card;
  }
  TORCH_CHECK(cpu.layout() == c10::kStrided && cpu.has_storage() && !cpu.is_quantized(),
              "the simulated card holds only dense strided tensors, this operator gives ", cpu.toString());
  const StoragePair& storage = storage_up(cpu);
  const c10::DispatchKeySet content = cpu.key_set() & kContentKeys;
  // A view is as its base is, also under inference mode; a fresh tensor is as the mode says.
  at::Tensor card =
      storage.argument ? at::detail::make_tensor<c10::TensorImpl>(
                             c10::TensorImpl::VIEW, c10::Storage(storage.card),
                             (storage.card_keys - kContentKeys) | content, cpu.dtype())
                       : at::detail::make_tensor<c10::TensorImpl>(
                             c10::Storage(storage.card), c10::DispatchKeySet(kSimKey) | content, cpu.dtype());
  card.unsafeGetTensorImpl()->set_sizes_and_strides(cpu.sizes(), cpu.strides(), cpu.storage_offset());
  return card;
}

void AliasScope::write_back() {
  for (const StoragePair& pair : storages_) {
    if (!pair.argument || pair.cpu.data() == pair.card.data()) continue;
    c10::StorageImpl& cpu = *pair.cpu.unsafeGetStorageImpl();
    c10::StorageImpl& card = *pair.card.unsafeGetStorageImpl();
    const std::size_t bytes = cpu.nbytes();
    c10::DataPtr data = cpu.set_data_ptr(c10::DataPtr(nullptr, c10::Device(c10::kCPU)));
    const void* moved = data.get();
    data.unsafe_set_device(sim_device());
    card.set_data_ptr_noswap(std::move(data));
    card.set_nbytes(bytes);
    cpu.set_data_ptr_noswap(c10::DataPtr(const_cast<void*>(moved), c10::Device(c10::kCPU)));
  }
  for (const TensorPair& pair : arguments_) {
    const c10::StorageImpl* storage = pair.cpu.storage().unsafeGetStorageImpl();
    if (const StoragePair* now = find_cpu(storage);
        now != nullptr && now->card.unsafeGetStorageImpl() != pair.card.storage().unsafeGetStorageImpl()) {
      pair.card.unsafeGetTensorImpl()->set_storage_keep_dtype(
          now->card);  // set_ gave it another argument's memory
    }
    copy_shape(pair.cpu, pair.card);
  }
}

at::Tensor borrow_as_cpu(const at::Tensor& tensor) {
  return make_cpu_alias(borrow_storage(tensor.storage()), tensor);
}

}  // namespace lowtide::device::sim
