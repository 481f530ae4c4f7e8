#include "residency/residency_manager.hpp"

#include <ATen/ops/from_blob.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <utility>

#include "base_torch/dtype_convert.hpp"

namespace lowtide::residency {
namespace {

c10::Stream new_copy_stream(const device::Device& device) {
  return c10::impl::VirtualGuardImpl(device.torch().type()).getStreamFromGlobalPool(device.torch());
}

c10::Stream compute_stream(const device::Device& device) {
  return c10::impl::VirtualGuardImpl(device.torch().type()).getStream(device.torch());
}

/// Host memory of one unit as a tensor of bytes, without a copy.
at::Tensor byte_tensor(std::span<const std::byte> bytes) {
  return at::from_blob(const_cast<std::byte*>(bytes.data()), {static_cast<std::int64_t>(bytes.size())},
                       at::TensorOptions().dtype(at::kByte).device(at::kCPU));
}

}  // namespace

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    release();
    manager_ = std::exchange(other.manager_, nullptr);
    step_ = other.step_;
  }
  return *this;
}

void Lease::release() noexcept {
  if (manager_ != nullptr) std::exchange(manager_, nullptr)->release(step_);
}

ResidencyManager::ResidencyManager(const device::Device& device, ResidencyInputs inputs, PlaceWeight place)
    : device_(device), inputs_(inputs), place_(std::move(place)), copy_stream_(new_copy_stream(device)) {
  const plan::Packing& packing = *inputs_.packing;
  resident_.assign(packing.units.size(), false);
  views_.resize(packing.units.size());
  std::vector<std::pair<std::size_t, Bytes>> home(inputs_.weights->files.size(), {SIZE_MAX, 0});
  for (std::size_t unit = 0; unit < packing.content.size(); ++unit) {
    for (const plan::PackedStorage& piece : packing.content[unit]) home[piece.storage] = {unit, piece.offset};
  }
  for (std::uint32_t w = 0; w < inputs_.weights->weights.size(); ++w) {
    const auto [unit, offset] = home[inputs_.weights->weights[w].file];
    if (unit != SIZE_MAX) views_[unit].push_back({w, static_cast<std::int64_t>(offset)});
  }
}

ResidencyManager::~ResidencyManager() = default;

void ResidencyManager::begin_job(const at::Tensor& slab) {
  slab_ = slab;
  arrived_.clear();
  for (std::size_t i = 0; i < inputs_.plan->fetches.size(); ++i)
    arrived_.emplace_back(device_.torch().type());
  step_done_.emplace(device_.torch().type());
  next_issue_ = 0;
  next_use_ = 0;
  issue_error_ = nullptr;
  issue_up_to(plan::kBeforeFirstStep);
}

bool ResidencyManager::loaded(const plan::Fetch& fetch) const {
  return fetch.resident && !inputs_.packing->units[fetch.unit].state && resident_[fetch.unit];
}

void ResidencyManager::issue_up_to(std::int64_t step) {
  const auto& fetches = inputs_.plan->fetches;
  bool slots_are_free = step == plan::kBeforeFirstStep;
  for (; next_issue_ < fetches.size() && fetches[next_issue_].free_after <= step; ++next_issue_) {
    if (loaded(fetches[next_issue_])) continue;
    if (!std::exchange(slots_are_free, true)) step_done_->block(copy_stream_);
    issue(next_issue_);
  }
}

void ResidencyManager::issue(std::size_t index) {
  const plan::Fetch& fetch = inputs_.plan->fetches[index];
  const c10::StreamGuard on_copy_stream(copy_stream_);
  const std::span<const std::byte> source = inputs_.store->unit(fetch.unit);
  slab_.narrow(0, static_cast<std::int64_t>(fetch.offset), static_cast<std::int64_t>(source.size()))
      .copy_(byte_tensor(source), /*non_blocking=*/true);
  device_.extras()->note_copy(/*to_device=*/true, source.size());
  arrived_[index].record(copy_stream_);
}

void ResidencyManager::place_views(const plan::Fetch& fetch) {
  auto* base = static_cast<std::byte*>(slab_.mutable_data_ptr()) + fetch.offset;
  for (const View& view : views_[fetch.unit]) {
    const graph::ConcreteMeta& meta = inputs_.weights->weights[view.weight].meta;
    const auto element = static_cast<std::int64_t>(graph::element_size(meta.dtype));
    // The slab is held by the tensor, so a view that outlives the job points to memory that still exists.
    at::Tensor tensor = at::from_blob(
        base + view.offset + meta.storage_offset * element, meta.sizes, meta.strides,
        [slab = slab_](void*) {},
        at::TensorOptions().dtype(to_scalar_type(meta.dtype)).device(device_.torch()), device_.torch());
    place_(view.weight, tensor);
  }
}

Lease ResidencyManager::acquire(plan::StepId step) {
  if (issue_error_) std::rethrow_exception(std::exchange(issue_error_, nullptr));
  const auto& fetches = inputs_.plan->fetches;
  std::size_t last_copied = fetches.size();
  for (; next_use_ < fetches.size() && fetches[next_use_].first_use == step; ++next_use_) {
    if (loaded(fetches[next_use_])) continue;
    place_views(fetches[next_use_]);
    last_copied = next_use_;
  }
  // Copies are carried out in the order of fetches, so the last one's arrival is that of all.
  if (last_copied != fetches.size()) arrived_[last_copied].block(compute_stream(device_));
  return Lease(*this, step);
}

void ResidencyManager::release(plan::StepId step) noexcept {
  const auto& fetches = inputs_.plan->fetches;
  if (next_issue_ >= fetches.size() || fetches[next_issue_].free_after > static_cast<std::int64_t>(step))
    return;
  try {
    step_done_->record(compute_stream(device_));
    issue_up_to(step);
  } catch (...) {
    issue_error_ = std::current_exception();
  }
}

void ResidencyManager::end_job() {
  for (std::size_t i = 0; i < next_use_; ++i) {
    const plan::Fetch& fetch = inputs_.plan->fetches[i];
    if (fetch.resident) resident_[fetch.unit] = true;
  }
  next_use_ = 0;  // ending a job that never began changes nothing
  slab_.reset();
}

void ResidencyManager::forget_residents() {
  resident_.assign(resident_.size(), false);
}

}  // namespace lowtide::residency
