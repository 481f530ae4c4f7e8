// State of a model that lives on from job to job: buffers and constants that the program writes.
//
// It has memory of its own, so it survives whatever happens to weights, and a second copy from before the
// job, so a job that fails leaves no trace:
//
//   between jobs      host copy, or the device's if it stays there (then a job moves none of it)
//   during a job      the device's; and as it was before: on the device where it stays there, else on the
//   host
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "device/device.hpp"
#include "lowtide/named_tensor.hpp"
#include "memory/staging.hpp"
#include "residency/transfers.hpp"
#include "session/model_data.hpp"

namespace lowtide::detail {

/// Of a ModelData::with_kept_state(). Not thread-safe. On the cpu the device's copy is host memory.
class ModelState {
 public:
  /// As in the archive. Throws ArchiveError when it cannot be read.
  explicit ModelState(std::shared_ptr<const ModelData> data);

  /// Of one copy, on the device.
  Bytes bytes() const { return bytes_; }
  /// Of all copies there now.
  Bytes device_bytes() const;

  /// Makes sure that it is on the device; `stays`: also between jobs. `staging` null on the cpu. Throws
  /// c10::OutOfMemoryError.
  void enter(const device::Device& device, memory::Staging* staging, bool stays);
  /// Keeps what a failing job must not change.
  void begin_job();
  /// Weight `index` is called with its tensor on the device, for each that is state. They are valid until
  /// end_job().
  void place(const std::function<void(std::uint32_t weight, const at::Tensor& tensor)>& set) const;
  /// Where it does not stay, it is sent to the host after a job that succeeded, before the device is
  /// synchronised.
  void send_home(const device::Device& device, memory::Staging& staging);
  /// The device has been synchronised. Where it does not stay, it leaves the device.
  void end_job(bool failed);
  /// Leaves the device, which is synchronised; the values are on the host then.
  void leave(const device::Device& device);

  // The rest: only when it has left the device, or on the cpu.

  /// As in the archive again. Throws ArchiveError when it cannot be read.
  void reset();
  /// Copies of the values, by name: what a name of the model sees of it.
  std::vector<NamedTensor> save() const;
  /// Throws InputError where names, shapes or types are not those of save(); nothing is changed then.
  void load(std::span<const NamedTensor> tensors);

 private:
  struct Part {
    std::uint32_t file = 0;
    Bytes offset = 0;  // in a copy
    Bytes bytes = 0;
    std::uint32_t named_by = UINT32_MAX;  // the weight that sees all of it, else it is saved as bytes
    std::string name;
  };

  void read_archive();
  at::Tensor view(const Part& part, const at::Tensor& copy) const;

  std::shared_ptr<const ModelData> data_;
  std::vector<Part> parts_;
  Bytes bytes_ = 0;
  bool stays_ = false;
  at::Tensor host_;                              // valid while `live_` is undefined
  at::Tensor live_;                              // on the device
  at::Tensor before_;                            // there, too, where it stays
  std::optional<residency::Download> homeward_;  // of a job that succeeded
};

}  // namespace lowtide::detail
