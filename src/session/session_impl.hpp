// The inside of a session: what it holds, and its work in two files, session_setup.cpp (devices, plans,
// loading) and session_job.cpp (running one job and cleaning up after it).
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "device/device.hpp"
#include "lowtide/session.hpp"
#include "memory/budget_ledger.hpp"
#include "session/learned_peaks.hpp"
#include "session/loaded_model.hpp"
#include "session/session_planner.hpp"

namespace lowtide {

/// Not thread-safe but for `cancelled`: the session's public functions hold `mutex`.
struct Session::Impl {
  struct Entry {
    std::shared_ptr<const detail::ModelData> data;
    ModelOptions options;
    std::unique_ptr<detail::LoadedModel> loaded;
  };

  explicit Impl(const SessionOptions& session_options);
  ~Impl();

  static inline std::atomic<const Impl*> card_owner{nullptr};

  bool capped() const { return spec.kind != device::DeviceKind::cpu; }
  bool has_clocks() const { return spec.kind == device::DeviceKind::sim; }
  device::Device& open();
  detail::ShapePlan shape_plan(const Entry& entry, const graph::InputDescriptions& inputs) const;
  void replan(std::map<std::size_t, detail::PlannedModel> models);
  const detail::ShapePlan& planned_shape(std::size_t index, const graph::InputDescriptions& inputs);
  detail::LoadedModel& load(std::size_t index);
  void ensure_slab(std::size_t index);
  void drop_slab();
  std::exception_ptr synchronise() noexcept;
  std::vector<at::Tensor> run(std::size_t index, const std::vector<at::Tensor>& inputs);
  std::exception_ptr end_job(std::size_t index, std::exception_ptr error);
  void record_job(const device::DeviceCounters& before, const detail::ShapePlan* shape);
  void check_baseline();
  Bytes fixed_bytes() const { return device->extras()->context_bytes() + library_bytes; }

  SessionOptions options;
  device::DeviceSpec spec;
  device::sim::Card card;
  int threads = 1;
  std::mutex mutex;
  std::atomic<bool> cancelled{false};
  std::optional<device::Device> device;
  detail::LearnedPeaks learned;
  std::vector<Entry> entries;
  std::optional<detail::SessionPlan> plan;
  std::unique_ptr<memory::BudgetLedger> ledger;
  memory::Reservation context_charge;
  memory::Reservation slab_charge;
  at::Tensor slab;
  std::size_t slab_owner = SIZE_MAX;
  JobStats last;
  Bytes library_bytes = 0;  // what libraries held on the device after the last job
  std::set<std::string> shapes_run;
  std::size_t jobs = 0;
};

}  // namespace lowtide
