#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <chrono>

#include "device/job_scope.hpp"
#include "lowtide/log.hpp"
#include "session/describe_inputs.hpp"
#include "session/session_impl.hpp"

namespace lowtide {

using detail::LoadedModel;
using detail::ShapePlan;
using memory::MemoryTag;

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::string first_line(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  return text.substr(0, text.find('\n'));
}

/// The exception, with what the device's allocator says as OutOfBudget and what else the device says as
/// DeviceError.
[[noreturn]] void rethrow_as_ours(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::OutOfMemoryError& e) {
    throw OutOfBudget("the device refused memory: " + first_line(e), 0, 0);
  } catch (const c10::AcceleratorError& e) {
    throw DeviceError("the device failed: " + first_line(e));
  } catch (const c10::Error& e) {
    throw OperatorError("PyTorch refused: " + first_line(e));
  }
}

}  // namespace

void Session::Impl::ensure_slab(std::size_t index) {
  if (slab_owner != SIZE_MAX && slab_owner != index && entries[slab_owner].loaded)
    entries[slab_owner].loaded->forget_device();
  if (!slab.defined()) {
    slab_charge = ledger->reserve(MemoryTag::weights, plan->slab_bytes, "the weight slab");
    slab = at::empty({static_cast<std::int64_t>(plan->slab_bytes)},
                     at::TensorOptions().dtype(at::kByte).device(device->torch()));
  }
  slab_owner = index;
}

void Session::Impl::drop_slab() {
  if (slab_owner != SIZE_MAX && entries[slab_owner].loaded) entries[slab_owner].loaded->forget_device();
  slab_owner = SIZE_MAX;
  slab.reset();
  slab_charge.release();
}

/// What the device reports only now, if anything.
std::exception_ptr Session::Impl::synchronise() noexcept {
  try {
    c10::impl::VirtualGuardImpl(device->torch().type()).synchronizeDevice(device->torch().index());
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

/// Cleans up after a job, whatever happened. Returns `error`, or what the device reports late.
std::exception_ptr Session::Impl::end_job(std::size_t index, std::exception_ptr error) {
  LoadedModel& model = *entries[index].loaded;
  if (!device->in_place()) {
    const std::exception_ptr late = synchronise();
    if (!error) error = late;
  }
  model.finish_job();
  if (device->in_place()) return error;
  if (options.after_job == AfterJob::release) {
    drop_slab();
    device->extras()->trim();
  } else if (error) {
    model.forget_device();  // what arrived and what did not is no longer worth knowing
  }
  return error;
}

void Session::Impl::record_job(const device::DeviceCounters& before, const ShapePlan* shape) {
  if (device->in_place()) return;
  const device::DeviceExtras& extras = *device->extras();
  const device::DeviceCounters after = extras.counters();
  if (has_clocks()) last.modelled_s = after.modelled_s - before.modelled_s;
  last.peak_bytes = extras.window_peak();
  last.used_after_bytes = after.used_bytes;
  last.h2d_bytes = after.h2d_bytes - before.h2d_bytes;
  last.h2d_copies = after.h2d_copies - before.h2d_copies;
  last.d2h_bytes = after.d2h_bytes - before.d2h_bytes;
  last.driver_allocs = after.driver_allocs - before.driver_allocs;
  library_bytes = after.library_bytes;
  if (shape == nullptr) return;
  last.first_of_shape = shapes_run.insert(shape->learned_key).second;
  const Bytes beside_weights = *last.peak_bytes - fixed_bytes() - plan->slab_bytes;
  if (shape->bounded && beside_weights > shape->peak_bytes)
    log_message(LogLevel::warning, "a job took " + std::to_string(beside_weights) +
                                       " bytes beside the weights where " +
                                       std::to_string(shape->peak_bytes) + " were proved (" + shape->text +
                                       "): please report this as an error of lowtide");
  learned.record(shape->learned_key, beside_weights);
}

void Session::Impl::check_baseline() {
  if (device->in_place()) return;
  const Bytes expected = fixed_bytes() + (slab.defined() ? plan->kept_bytes : 0);
  if (*last.used_after_bytes == expected) return;
  const std::string text = "the device holds " + std::to_string(*last.used_after_bytes) +
                           " bytes after the job, expected " + std::to_string(expected) +
                           "; please report this as an error of lowtide";
  // On a GPU a library may keep memory of ours that nobody foresaw; the results are right all the same.
  if (spec.kind != device::DeviceKind::cuda) throw Error("internal: " + text);
  log_message(LogLevel::warning, text);
}

std::vector<at::Tensor> Session::Impl::run(std::size_t index, const std::vector<at::Tensor>& given) {
  last = {};
  const c10::InferenceMode inference;
  const auto start = std::chrono::steady_clock::now();
  Entry& entry = entries[index];
  const std::vector<at::Tensor> inputs = detail::complete_inputs(*entry.data, given);
  const graph::InputDescriptions described = detail::describe_inputs(*entry.data, inputs);
  const ShapePlan* shape = nullptr;
  if (capped()) {
    shape = &planned_shape(index, described);
  } else {
    graph::bind_inputs(entry.data->program(), described);  // checks
  }
  LoadedModel& model = load(index);
  open();
  device::DeviceCounters before;
  memory::Reservation job_charge;
  if (capped()) {
    before = device->extras()->counters();
    device->extras()->start_window();
  }
  std::vector<at::Tensor> results;
  std::exception_ptr error;
  try {
    const device::JobScope scope(device->extras());
    if (capped()) {
      ensure_slab(index);
      job_charge =
          ledger->reserve(MemoryTag::activations, shape->peak_bytes, "the job's activations and workspace");
    }
    model.set_inputs(inputs);
    model.run(slab, cancelled);
    results = model.take_outputs();
  } catch (...) {
    error = std::current_exception();
  }
  error = end_job(index, error);
  record_job(before, error ? nullptr : shape);
  last.wall_s = seconds_since(start);
  if (error) rethrow_as_ours(error);
  ++jobs;
  check_baseline();
  return results;
}

}  // namespace lowtide
