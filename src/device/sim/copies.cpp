#include "device/sim/copies.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <torch/library.h>

#include <array>
#include <memory>

#include "device/sim/allocators.hpp"
#include "device/sim/device_errors.hpp"
#include "device/sim/streams.hpp"
#include "device/sim/tensor_alias.hpp"
#include "device/sim/touches.hpp"

namespace lowtide::device::sim {
namespace {

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(sizes, &card_allocator(), c10::DispatchKeySet(kSimKey),
                                   dtype.value_or(c10::get_default_dtype_as_scalartype()), format);
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(sizes, strides, &card_allocator(), c10::DispatchKeySet(kSimKey),
                                           dtype.value_or(c10::get_default_dtype_as_scalartype()));
}

/// A storage without memory, on the card.
at::Tensor& set_empty(at::Tensor& self) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), 0, &card_allocator(), /*resizable=*/true);
  return at::native::set_storage_cpu_(self, std::move(storage), 0, {0}, {});
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source) {
  return at::native::set_(self, std::move(source));
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  card_allocator().recordStream(self.storage().data_ptr(), stream);
}

bool is_page_locked(const at::Tensor& host) {
  const MemoryRange range = range_of(host);
  return sim_card().pinned().contains(range.begin, range.bytes);
}

void copy_bytes(at::Tensor target, const at::Tensor& source) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  at::native::copy_(target, source, /*non_blocking=*/false);
}

/// Card to card: an operator like any other.
void copy_on_card(const at::Tensor& self, const at::Tensor& source) {
  const StreamNumber stream = current_stream();
  sim_card().enter_stream(stream);
  {
    const KernelScope kernel;
    copy_bytes(borrow_as_cpu(self), borrow_as_cpu(source));
  }
  graph::OpCost cost;
  cost.bytes = static_cast<double>(self.nbytes()) + static_cast<double>(source.nbytes());
  const std::array touches{touch(source, "src", false), touch(self, "self", true)};
  on_device(
      [&] { sim_card().account_operator(stream, "aten::copy_", cost, /*synchronises=*/false, touches); });
}

/// May one tensor become the other in place (`param.data = ...`)? PyTorch does not count the card's tensors
/// among the dense ones; they are, like the CPU's.
bool has_compatible_type(const at::Tensor& self, const at::Tensor& from) {
  return self.layout() == c10::kStrided && from.layout() == c10::kStrided;
}

/// Keeps the bytes of a tensor alive for a copy that waits in a queue. The card's memory counts as freed when
/// its owner frees it, as it would on CUDA; host memory stays, as PyTorch's pinned allocator has it.
class KeptBytes {
 public:
  explicit KeptBytes(const at::Tensor& tensor) {
    void* const block = tensor.storage().mutable_data();
    if (sim_card().memory().hold(block)) {
      held_ = std::shared_ptr<void>(block, [](void* data) { sim_card().memory().let_go(data); });
    } else {
      storage_ = tensor.storage();
    }
  }

 private:
  std::shared_ptr<void> held_;
  c10::Storage storage_;  // memory that is no block of the card's: the host's, or inside a block
};

/// Over the link. Asynchronous only where the caller asked for it and the host's side is page-locked.
void copy_over_link(const at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  const StreamNumber stream = current_stream();
  const bool to_card = on_card(self);
  const bool pinned = is_page_locked(to_card ? source : self);
  const bool deferred = pinned && non_blocking;
  std::array touches{touch(source, "", false), touch(self, "", true)};
  touches[to_card ? 0 : 1].by_host = !deferred;
  on_device([&] {
    sim_card().check_copy();
    if (deferred) {
      sim_card().defer(
          stream, [target = borrow_as_cpu(self), origin = borrow_as_cpu(source),
                   kept = std::array{KeptBytes(self), KeptBytes(source)}] { copy_bytes(target, origin); });
    } else {
      sim_card().enter_stream(stream);
      copy_bytes(borrow_as_cpu(self), borrow_as_cpu(source));
    }
    sim_card().account_copy(stream,
                            {.direction = to_card ? Direction::to_card : Direction::to_host,
                             .bytes = self.nbytes(),
                             .pinned = pinned,
                             .blocking = !deferred},
                            touches);
  });
}

at::Tensor& copy(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  TORCH_CHECK(self.layout() == c10::kStrided && source.layout() == c10::kStrided,
              "the simulated card copies only dense strided tensors");
  if (self.is_same(source) || self.numel() == 0) return self;
  // expand() below checks nothing about memory; it only gives the source the target's sizes.
  const at::Tensor expanded = source.sizes() == self.sizes() ? source : source.expand(self.sizes());
  if (on_card(self) && on_card(expanded)) {
    copy_on_card(self, expanded);
  } else {
    copy_over_link(self, expanded, non_blocking);
  }
  return self;
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& target, bool non_blocking) {
  at::Tensor result = target;
  return copy(result, self, non_blocking);
}

}  // namespace

const std::unordered_set<std::string>& register_own_kernels(torch::Library& library) {
  static auto* const names = new std::unordered_set<std::string>;
  const auto add = [&](const char* name, auto* kernel) {
    library.impl(name, kernel);
    names->insert(std::string("aten::") + name);
  };
  add("empty.memory_format", &empty);
  add("empty_strided", &empty_strided);
  add("copy_", &copy);
  add("_copy_from", &copy_from);
  add("record_stream", &record_stream);
  add("_has_compatible_shallow_copy_type", &has_compatible_type);
  // The CPU's code asks the storage's allocator for memory, so it is right for card storages.
  add("resize_",
      static_cast<const at::Tensor& (*)(const at::Tensor&, at::IntArrayRef, std::optional<at::MemoryFormat>)>(
          &at::native::resize_));
  add("set_", &set_empty);
  add("set_.source_Storage", &set_storage);
  add("set_.source_Storage_storage_offset", &at::native::set_storage_cpu_);
  add("set_.source_Tensor", &at::native::set_tensor_);
  return *names;
}

}  // namespace lowtide::device::sim
