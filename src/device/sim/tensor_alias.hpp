// Card tensors and CPU tensors over the same bytes: what lets the CPU's kernels run on the card's memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/util/SmallVector.h>

namespace lowtide::device::sim {

inline bool on_card(const at::Tensor& tensor) {
  return tensor.device().type() == c10::DeviceType::PrivateUse1;
}

/// The aliases of one operator call. Card arguments go down to CPU aliases, the CPU kernel's results come up
/// as card tensors: the argument itself where it was returned, a view where memory is shared, else a tensor
/// that takes the memory over. Holds the card tensors alive. One thread.
class AliasScope {
 public:
  AliasScope() = default;
  AliasScope(const AliasScope&) = delete;
  AliasScope& operator=(const AliasScope&) = delete;

  /// A CPU tensor over the card tensor's memory, valid while the scope lives; the same one every time.
  at::Tensor down(const at::Tensor& card);
  /// Does an argument require gradients?
  bool requires_grad() const { return requires_grad_; }
  /// The card tensor for a result. Throws c10::Error for anything but strided tensors.
  at::Tensor up(const at::Tensor& cpu);
  /// Is the result's memory that of an argument?
  bool shares_argument(const at::Tensor& cpu) const;
  /// Carries sizes and memory that the kernel changed in place (resize_, t_, out=) over to the card tensors.
  void write_back();

 private:
  struct StoragePair {
    c10::Storage cpu;
    c10::Storage card;
    c10::DispatchKeySet card_keys;  // of a card tensor on it: its views are of the same kind
    bool argument = false;
  };
  struct TensorPair {
    at::Tensor cpu;
    at::Tensor card;
  };

  const StoragePair& storage_down(const at::Tensor& card);
  const StoragePair* find_cpu(const c10::StorageImpl* cpu) const;
  const StoragePair& storage_up(const at::Tensor& cpu);

  c10::SmallVector<StoragePair, 8> storages_;
  c10::SmallVector<TensorPair, 8> arguments_;
  bool requires_grad_ = false;
};

/// A CPU tensor over the same memory that does not keep it alive.
at::Tensor borrow_as_cpu(const at::Tensor& tensor);

}  // namespace lowtide::device::sim
