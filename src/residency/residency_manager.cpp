#include "residency/residency_manager.hpp"

#include <ATen/ops/from_blob.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <utility>

#include "base_torch/dtype_convert.hpp"
#include "plan/weight_split.hpp"
#include "residency/transfers.hpp"

namespace lowtide::residency {
namespace {

c10::Stream new_copy_stream(const device::Device& device) {
  return c10::impl::VirtualGuardImpl(device.torch().type()).getStreamFromGlobalPool(device.torch());
}

c10::Stream compute_stream(const device::Device& device) {
  return c10::impl::VirtualGuardImpl(device.torch().type()).getStream(device.torch());
}

Bytes largest_unit(const plan::Packing& packing) {
  Bytes most = 0;
  for (const plan::Unit& unit : packing.units) most = std::max(most, unit.bytes);
  return most;
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
    : device_(device),
      inputs_(inputs),
      place_(std::move(place)),
      copy_stream_(new_copy_stream(device)),
      ring_(device, largest_unit(*inputs.packing)) {
  const plan::Packing& packing = *inputs_.packing;
  resident_.assign(packing.units.size(), false);
  views_.resize(packing.units.size());
  std::vector<std::vector<std::uint32_t>> weights_of(inputs_.weights->files.size());
  for (std::uint32_t w = 0; w < inputs_.weights->weights.size(); ++w)
    weights_of[inputs_.weights->weights[w].file].push_back(w);
  for (std::size_t unit = 0; unit < packing.content.size(); ++unit) {
    for (const plan::PackedStorage& piece : packing.content[unit]) {
      for (const std::uint32_t weight : weights_of[piece.storage])
        views_[unit].push_back({weight, static_cast<std::int64_t>(piece.offset), piece.chunk, piece.chunks});
    }
  }
}

ResidencyManager::~ResidencyManager() = default;

void ResidencyManager::restart(const at::Tensor& slab) {
  slab_ = slab;
  arrived_.clear();
  for (std::size_t i = 0; i < inputs_.plan->fetches.size(); ++i)
    arrived_.emplace_back(device_.torch().type());
  step_done_.emplace(device_.torch().type());
  next_issue_ = 0;
  next_use_ = 0;
  issue_error_ = nullptr;
}

void ResidencyManager::begin_job(const at::Tensor& slab) {
  restart(slab);
  issue_up_to(plan::kBeforeFirstStep);
}

void ResidencyManager::set_plan(const plan::ResidencyPlan& plan) {
  inputs_.plan = &plan;
  forget_residents();
}

const plan::Fetch* ResidencyManager::tenant(plan::UnitId unit, plan::StepId position) const {
  for (const plan::Fetch& fetch : inputs_.plan->fetches) {
    if (fetch.unit == unit && fetch.first_use <= position && position <= fetch.last_use) return &fetch;
  }
  return nullptr;
}

SavedState ResidencyManager::save_state() const {
  SavedState state;
  for (const plan::Fetch& fetch : inputs_.plan->fetches) {
    const plan::Unit& unit = inputs_.packing->units[fetch.unit];
    if (!unit.state) continue;
    state[fetch.unit] = byte_tensor(static_cast<const std::byte*>(slab_.const_data_ptr()) + fetch.offset,
                                    unit.bytes, device_.torch())
                            .to(at::kCPU);
    device_.extras()->note_copy(/*to_device=*/false, unit.bytes);
  }
  return state;
}

void ResidencyManager::abandon_slab() {
  slab_.reset();
  forget_residents();
}

void ResidencyManager::resume(const at::Tensor& slab, const plan::ResidencyPlan& plan, plan::StepId position,
                              const SavedState& state) {
  inputs_.plan = &plan;
  restart(slab);
  state_ = &state;
  const auto& fetches = plan.fetches;
  std::size_t last_copied = fetches.size();
  for (; next_issue_ < fetches.size(); ++next_issue_) {
    const plan::Fetch& fetch = fetches[next_issue_];
    if (fetch.first_use > position) break;  // sorted by first use: what follows is issued as ever
    if (fetch.last_use < position && !inputs_.packing->units[fetch.unit].state) continue;  // done with
    issue(next_issue_);
    place_views(fetch);
    last_copied = next_issue_;
  }
  next_use_ = next_issue_;
  if (last_copied != fetches.size()) arrived_[last_copied].block(compute_stream(device_));
  issue_up_to(static_cast<std::int64_t>(position) - 1);
  state_ = nullptr;
}

std::optional<ResidencyManager::Anchor> ResidencyManager::find_anchor(const void* data,
                                                                      plan::StepId position) const {
  const auto offset =
      static_cast<const std::byte*>(data) - static_cast<const std::byte*>(slab_.const_data_ptr());
  if (offset < 0 || offset >= slab_.numel()) return std::nullopt;
  for (const plan::Fetch& fetch : inputs_.plan->fetches) {
    const std::int64_t inside = offset - static_cast<std::int64_t>(fetch.offset);
    if (inside < 0 || inside >= static_cast<std::int64_t>(inputs_.packing->units[fetch.unit].bytes)) continue;
    if (fetch.first_use <= position && (position <= fetch.last_use || fetch.resident))
      return Anchor{fetch.unit, inside};
  }
  return std::nullopt;
}

void* ResidencyManager::at_anchor(const Anchor& anchor, plan::StepId position) const {
  const plan::Fetch* fetch = tenant(anchor.unit, position);
  if (fetch == nullptr) return nullptr;
  return static_cast<std::byte*>(slab_.mutable_data_ptr()) + fetch->offset + anchor.offset;
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
  const std::span<const std::byte> source = inputs_.store->unit(*inputs_.packing, fetch.unit);
  const bool saved = state_ != nullptr && inputs_.packing->units[fetch.unit].state;
  auto* place = static_cast<std::byte*>(slab_.mutable_data_ptr()) + fetch.offset;
  if (!saved && !inputs_.store->locked(source.data())) {
    ring_.copy(source.data(), place, source.size(), copy_stream_);
  } else {
    byte_tensor(place, source.size(), device_.torch())
        .copy_(saved ? state_->at(fetch.unit) : byte_tensor(source.data(), source.size(), at::kCPU),
               /*non_blocking=*/true);
  }
  device_.extras()->note_copy(/*to_device=*/true, source.size());
  arrived_[index].record(copy_stream_);
}

void ResidencyManager::place_views(const plan::Fetch& fetch) {
  auto* base = static_cast<std::byte*>(slab_.mutable_data_ptr()) + fetch.offset;
  for (const View& view : views_[fetch.unit]) {
    const graph::ConcreteMeta& meta = inputs_.weights->weights[view.weight].meta;
    const auto element = static_cast<std::int64_t>(graph::element_size(meta.dtype));
    // The slab is held by the tensor, so a view that outlives the job points to memory that still exists.
    std::vector<std::int64_t> sizes = meta.sizes;
    if (view.chunks > 1) {
      const auto [first, end] =
          plan::chunk_rows(static_cast<std::uint64_t>(sizes[0]), view.chunk, view.chunks);
      sizes[0] = static_cast<std::int64_t>(end - first);
    }
    at::Tensor tensor = at::from_blob(
        base + view.offset + meta.storage_offset * element, sizes, meta.strides, [slab = slab_](void*) {},
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
  for (std::size_t i = 0; i < next_use_ && slab_.defined(); ++i) {
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
