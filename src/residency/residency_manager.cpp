#include "residency/residency_manager.hpp"

#include <ATen/ops/from_blob.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <utility>

#include "base_torch/dtype_convert.hpp"
#include "lowtide/error.hpp"
#include "plan/weight_split.hpp"
#include "residency/transfers.hpp"

namespace lowtide::residency {
namespace {

std::optional<c10::Stream> new_copy_stream(const device::Device& device) {
  if (device.in_place()) return std::nullopt;
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

/// With a cap on host memory a few locked MiB must do for what could not be locked.
constexpr Bytes kSmallPiece = 1024 * 1024;

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
      ring_(device, inputs.disk == nullptr ? largest_unit(*inputs.packing) : kSmallPiece) {
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
  queued_.assign(inputs_.plan->fetches.size(), 0);
  if (copy_stream_) {
    for (std::size_t i = 0; i < inputs_.plan->fetches.size(); ++i)
      arrived_.emplace_back(device_.torch().type());
    step_done_.emplace(device_.torch().type());
  }
  next_issue_ = 0;
  next_use_ = 0;
  from_disk_ = 0;
  issue_error_ = nullptr;
}

void ResidencyManager::begin_job(const at::Tensor& slab) {
  restart(slab);
  state_.clear();
  read_ahead(0);
  issue_up_to(plan::kBeforeFirstStep);
}

/// Does the fetch travel in a job that goes on before `position`?
bool ResidencyManager::travels(const plan::Fetch& fetch, plan::StepId position) const {
  const bool done_with = fetch.last_use < position && !inputs_.packing->units[fetch.unit].state;
  return !done_with && !loaded(fetch);
}

/// Reads from the file what will be issued and is not held, in that order.
void ResidencyManager::read_ahead(plan::StepId position) {
  if (inputs_.disk == nullptr) return;
  std::vector<memory::Extent> order;
  for (const plan::Fetch& fetch : inputs_.plan->fetches) {
    if (inputs_.store->holds(*inputs_.packing, fetch.unit) || is_saved(fetch.unit)) continue;
    if (!travels(fetch, position)) continue;
    const std::vector<plan::PackedStorage>& content = inputs_.packing->content[fetch.unit];
    for (std::size_t i = 0; i < content.size(); ++i) {  // without gaps, in this order
      const Bytes end =
          i + 1 < content.size() ? content[i + 1].offset : inputs_.packing->units[fetch.unit].bytes;
      order.push_back(
          {inputs_.weights->files[content[i].storage].offset + content[i].begin, end - content[i].offset});
    }
  }
  feed_.reset();
  if (order.empty()) return;
  auto feed = std::make_unique<DiskFeed>(device_, inputs_.file, *inputs_.disk);
  feed->begin(order);
  feed_ = std::move(feed);  // only one that has begun
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
  for (std::size_t i = 0; i < next_issue_; ++i) {  // what was not issued is as in the archive
    const plan::Fetch& fetch = inputs_.plan->fetches[i];
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
  feed_.reset();
  slab_.reset();
  forget_residents();
}

void ResidencyManager::resume(const at::Tensor& slab, const plan::ResidencyPlan& plan, plan::StepId position,
                              const SavedState& state) {
  inputs_.plan = &plan;
  restart(slab);
  state_ = state;
  read_ahead(position);
  const auto& fetches = plan.fetches;
  std::size_t last_copied = fetches.size();
  for (; next_issue_ < fetches.size(); ++next_issue_) {
    const plan::Fetch& fetch = fetches[next_issue_];
    if (fetch.first_use > position) break;  // sorted by first use: what follows is issued as ever
    if (!travels(fetch, position)) continue;
    issue(next_issue_, /*may_wait=*/true);
    place_views(fetch);
    last_copied = next_issue_;
  }
  next_use_ = next_issue_;
  if (last_copied != fetches.size()) compute_waits_for(last_copied);
  issue_up_to(static_cast<std::int64_t>(position) - 1);
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

bool ResidencyManager::is_saved(plan::UnitId unit) const {
  return state_.contains(unit);
}

/// Issues what may go into its slot after `step`, as far as the disk has come.
void ResidencyManager::issue_up_to(std::int64_t step) {
  const auto& fetches = inputs_.plan->fetches;
  bool slots_are_free = step == plan::kBeforeFirstStep;
  for (; next_issue_ < fetches.size() && fetches[next_issue_].free_after <= step; ++next_issue_) {
    if (loaded(fetches[next_issue_])) continue;
    if (!std::exchange(slots_are_free, true)) wait_for_slots();
    if (!issue(next_issue_, /*may_wait=*/false)) return;
  }
}

/// The weights of this step that are not issued yet, waiting for the disk.
void ResidencyManager::issue_all_of(plan::StepId step) {
  const auto& fetches = inputs_.plan->fetches;
  for (; next_issue_ < fetches.size() && fetches[next_issue_].first_use <= step; ++next_issue_) {
    if (loaded(fetches[next_issue_])) continue;
    if (from_disk_ == 0 && fetches[next_issue_].free_after > plan::kBeforeFirstStep) wait_for_slots();
    issue(next_issue_, /*may_wait=*/true);
  }
}

/// What was issued last before this reads memory that copies after it overwrite.
void ResidencyManager::wait_for_slots() {
  if (step_done_) step_done_->block(*copy_stream_);
}

/// False where the disk has not come so far: the next call goes on with the same unit.
bool ResidencyManager::issue(std::size_t index, bool may_wait) {
  const plan::Fetch& fetch = inputs_.plan->fetches[index];
  std::optional<c10::StreamGuard> on_copy_stream;
  if (copy_stream_) on_copy_stream.emplace(*copy_stream_);
  auto* place = static_cast<std::byte*>(slab_.mutable_data_ptr()) + fetch.offset;
  if (is_saved(fetch.unit) || inputs_.store->holds(*inputs_.packing, fetch.unit)) {
    copy_from_host(fetch.unit, place);
  } else if (!copy_from_disk(fetch.unit, place, may_wait)) {
    return false;
  }
  if (!copy_stream_) {
    if (feed_) queued_[index] = feed_->queued();
    return true;
  }
  device_.extras()->note_copy(/*to_device=*/true, inputs_.packing->units[fetch.unit].bytes);
  arrived_[index].record(*copy_stream_);
  return true;
}

void ResidencyManager::copy_from_host(plan::UnitId unit, std::byte* place) {
  if (is_saved(unit)) {
    byte_tensor(place, inputs_.packing->units[unit].bytes, device_.torch())
        .copy_(state_.at(unit), /*non_blocking=*/true);
    return;
  }
  const std::span<const std::byte> source = inputs_.store->unit(*inputs_.packing, unit);
  if (copy_stream_ && !inputs_.store->locked(source.data())) {
    ring_.copy(source.data(), place, source.size(), *copy_stream_);
  } else {
    byte_tensor(place, source.size(), device_.torch())
        .copy_(byte_tensor(source.data(), source.size(), at::kCPU), /*non_blocking=*/true);
  }
}

bool ResidencyManager::copy_from_disk(plan::UnitId unit, std::byte* place, bool may_wait) {
  if (!feed_) throw Error("internal: a unit that stays in the file is wanted, but nothing reads the file");
  const Bytes bytes = inputs_.packing->units[unit].bytes;
  while (from_disk_ < bytes) {
    if (!may_wait && !feed_->ready()) return false;
    from_disk_ += feed_->copy_next(place + from_disk_, copy_stream_);
  }
  from_disk_ = 0;
  return true;
}

void ResidencyManager::compute_waits_for(std::size_t fetch) {
  if (copy_stream_) {
    arrived_[fetch].block(compute_stream(device_));
  } else if (feed_) {
    feed_->wait_for(queued_[fetch]);
  }
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
  issue_all_of(step);
  const auto& fetches = inputs_.plan->fetches;
  std::size_t last_copied = fetches.size();
  for (; next_use_ < fetches.size() && fetches[next_use_].first_use == step; ++next_use_) {
    if (loaded(fetches[next_use_])) continue;
    place_views(fetches[next_use_]);
    last_copied = next_use_;
  }
  // Copies are carried out in the order of fetches, so the last one's arrival is that of all.
  if (last_copied != fetches.size()) compute_waits_for(last_copied);
  return Lease(*this, step);
}

void ResidencyManager::release(plan::StepId step) noexcept {
  const auto& fetches = inputs_.plan->fetches;
  if (next_issue_ >= fetches.size() || fetches[next_issue_].free_after > static_cast<std::int64_t>(step))
    return;
  try {
    if (step_done_) step_done_->record(compute_stream(device_));
    issue_up_to(step);
  } catch (...) {
    issue_error_ = std::current_exception();
  }
}

void ResidencyManager::end_job() noexcept {
  feed_.reset();
  state_.clear();
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
