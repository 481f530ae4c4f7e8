#include "session/model_state.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "base/checked_math.hpp"
#include "base_torch/dtype_convert.hpp"
#include "lowtide/error.hpp"
#include "memory/host_slab.hpp"
#include "memory/read_ahead.hpp"
#include "plan/residency_problem.hpp"

namespace lowtide::detail {
namespace {

/// Through which state is read from the archive; twice.
constexpr Bytes kReadPiece = 256 * 1024;

std::byte* bytes_of(const at::Tensor& copy) {
  return static_cast<std::byte*>(copy.mutable_data_ptr());
}

/// Does the weight see all of its storage, in row-major order?
bool sees_all(const graph::Weight& weight, Bytes bytes) {
  std::int64_t elements = 1;
  for (std::size_t d = weight.meta.sizes.size(); d-- > 0;) {
    if (weight.meta.sizes[d] != 1 && weight.meta.strides[d] != elements) return false;
    elements *= weight.meta.sizes[d];
  }
  return weight.meta.storage_offset == 0 &&
         static_cast<Bytes>(elements) * graph::element_size(weight.meta.dtype) == bytes;
}

std::string described(const at::Tensor& tensor) {
  return c10::str(tensor.scalar_type(), " ", tensor.sizes());
}

}  // namespace

ModelState::ModelState(std::shared_ptr<const ModelData> data) : data_(std::move(data)) {
  const graph::WeightTable& weights = data_->weights();
  for (const std::uint32_t file : data_->kept_state()) {
    Part part{.file = file, .offset = bytes_, .bytes = weights.files[file].bytes};
    for (std::uint32_t w = 0; w < weights.weights.size(); ++w) {
      if (weights.weights[w].file != file) continue;
      const bool whole = sees_all(weights.weights[w], part.bytes);
      if (part.name.empty() || (whole && part.named_by == UINT32_MAX)) part.name = weights.weights[w].name;
      if (whole && part.named_by == UINT32_MAX) part.named_by = w;
    }
    bytes_ += round_up(part.bytes, plan::kGranule);
    parts_.push_back(std::move(part));
  }
  host_ = at::empty({static_cast<std::int64_t>(bytes_)}, at::kByte);
  read_archive();
}

void ModelState::read_archive() {
  std::vector<memory::Extent> order;
  for (const Part& part : parts_) order.push_back({data_->weights().files[part.file].offset, part.bytes});
  const memory::HostSlab ring = memory::HostSlab::pageable(2 * kReadPiece);
  memory::ReadAhead reader(data_->file(), order, {ring.data(), ring.bytes()}, kReadPiece);
  for (const Part& part : parts_) {
    for (Bytes done = 0; done < part.bytes;) {
      const memory::ReadAhead::Part read = reader.next();
      std::memcpy(bytes_of(host_) + part.offset + done, read.bytes.data(), read.bytes.size());
      done += read.bytes.size();
      if (read.ends_piece) reader.release();
    }
  }
}

Bytes ModelState::device_bytes() const {
  return (live_.defined() ? bytes_ : 0) + (before_.defined() ? bytes_ : 0);
}

void ModelState::enter(const device::Device& device, memory::Staging* staging, bool stays) {
  stays_ = stays || device.in_place();
  if (live_.defined()) return;
  at::Tensor live = device.in_place() ? host_ : residency::upload(host_, device, *staging);
  if (stays_) before_ = at::empty_like(live);
  live_ = std::move(live);
}

void ModelState::begin_job() {
  if (stays_) before_.copy_(live_);
}

void ModelState::place(const std::function<void(std::uint32_t, const at::Tensor&)>& set) const {
  const graph::WeightTable& weights = data_->weights();
  std::map<std::uint32_t, Bytes> offsets;
  for (const Part& part : parts_) offsets[part.file] = part.offset;
  for (std::uint32_t w = 0; w < weights.weights.size(); ++w) {
    const auto offset = offsets.find(weights.weights[w].file);
    if (offset == offsets.end()) continue;
    const graph::ConcreteMeta& meta = weights.weights[w].meta;
    const auto element = static_cast<std::int64_t>(graph::element_size(meta.dtype));
    set(w, at::from_blob(
               bytes_of(live_) + offset->second + meta.storage_offset * element, meta.sizes, meta.strides,
               [copy = live_](void*) {},
               at::TensorOptions().dtype(to_scalar_type(meta.dtype)).device(live_.device()), live_.device()));
  }
}

void ModelState::send_home(const device::Device& device, memory::Staging& staging) {
  if (!stays_) homeward_.emplace(live_, device, staging);
}

void ModelState::end_job(bool failed) {
  if (stays_) {
    if (failed && live_.defined()) std::swap(live_, before_);
    if (live_.defined() && live_.device().is_cpu()) host_ = live_;
    return;
  }
  if (!failed && homeward_) host_ = homeward_->result();
  homeward_.reset();
  live_.reset();
}

void ModelState::leave(const device::Device& device) {
  if (!live_.defined() || device.in_place()) return;
  device.extras()->note_copy(/*to_device=*/false, bytes_);
  host_ = live_.to(at::kCPU);
  live_.reset();
  before_.reset();
}

void ModelState::reset() {
  read_archive();
}

at::Tensor ModelState::view(const Part& part, const at::Tensor& copy) const {
  std::byte* place = bytes_of(copy) + part.offset;
  if (part.named_by == UINT32_MAX)
    return at::from_blob(place, {static_cast<std::int64_t>(part.bytes)}, at::kByte);
  const graph::ConcreteMeta& meta = data_->weights().weights[part.named_by].meta;
  return at::from_blob(place, meta.sizes, meta.strides, to_scalar_type(meta.dtype));
}

std::vector<NamedTensor> ModelState::save() const {
  std::vector<NamedTensor> tensors;
  for (const Part& part : parts_) tensors.push_back({part.name, view(part, host_).clone()});
  return tensors;
}

void ModelState::load(std::span<const NamedTensor> tensors) {
  std::vector<const at::Tensor*> values(parts_.size(), nullptr);
  for (const NamedTensor& given : tensors) {
    const auto part = std::find_if(parts_.begin(), parts_.end(),
                                   [&](const Part& candidate) { return candidate.name == given.name; });
    if (part == parts_.end())
      throw InputError("'" + given.name + "' is no state of '" + data_->path().filename().string() +
                       "': load what was saved from this model");
    const at::Tensor wanted = view(*part, host_);
    if (given.tensor.scalar_type() != wanted.scalar_type() || given.tensor.sizes() != wanted.sizes())
      throw InputError("state '" + given.name + "' is " + described(given.tensor) + ", the model has " +
                       described(wanted) + ": load what was saved from this model");
    values[static_cast<std::size_t>(part - parts_.begin())] = &given.tensor;
  }
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    if (values[p] == nullptr)
      throw InputError("state '" + parts_[p].name + "' of '" + data_->path().filename().string() +
                       "' is missing: load what was saved from this model");
  }
  for (std::size_t p = 0; p < parts_.size(); ++p) view(parts_[p], host_).copy_(*values[p]);
}

}  // namespace lowtide::detail
