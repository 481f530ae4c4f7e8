#include "lowtide/session.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>

#include "base_torch/dtype_convert.hpp"
#include "device/device.hpp"
#include "lowtide/log.hpp"
#include "memory/budget_ledger.hpp"
#include "session/describe_inputs.hpp"
#include "session/loaded_model.hpp"
#include "session/physical_cores.hpp"
#include "session/session_planner.hpp"

namespace lowtide {

using detail::LoadedModel;
using detail::PlannedModel;
using detail::ShapePlan;
using memory::MemoryTag;

namespace {

/// Shapes whose plans are kept for one model; the oldest goes first.
constexpr std::size_t kMaxShapePlans = 256;

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

/// The device belongs to this thread's job while it lives. Nothing to do where `extras` is null.
class JobScope {
 public:
  explicit JobScope(device::DeviceExtras* extras) : extras_(extras) {
    if (extras_ != nullptr) extras_->enter_job();
  }
  ~JobScope() {
    if (extras_ != nullptr) extras_->leave_job();
  }
  JobScope(const JobScope&) = delete;
  JobScope& operator=(const JobScope&) = delete;

 private:
  device::DeviceExtras* extras_;
};

}  // namespace

struct Session::Impl {
  struct Entry {
    std::shared_ptr<const detail::ModelData> data;
    ModelOptions options;
    std::unique_ptr<LoadedModel> loaded;
  };

  explicit Impl(const SessionOptions& session_options);
  ~Impl();

  static inline std::atomic<const Impl*> card_owner{nullptr};

  bool capped() const { return spec.kind != device::DeviceKind::cpu; }
  bool has_clocks() const { return spec.kind == device::DeviceKind::sim; }
  device::Device& open();
  ShapePlan shape_plan(const Entry& entry, const graph::InputDescriptions& inputs) const;
  void replan(std::map<std::size_t, PlannedModel> models);
  const ShapePlan& planned_shape(std::size_t index, const graph::InputDescriptions& inputs);
  LoadedModel& load(std::size_t index);
  void ensure_slab(std::size_t index);
  void drop_slab();
  std::exception_ptr synchronise() noexcept;
  std::vector<at::Tensor> run(std::size_t index, const std::vector<at::Tensor>& inputs);
  std::exception_ptr end_job(std::size_t index, std::exception_ptr error);
  void record_job(const device::DeviceCounters& before, const ShapePlan* shape);
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

Session::Impl::Impl(const SessionOptions& session_options)
    : options(session_options),
      spec(device::parse_device_spec(session_options.device)),
      learned(session_options.learned_file) {
  if (!capped() && (options.vram_cap || options.low_vram))
    throw UsageError(
        std::string(options.vram_cap ? "--vram-cap" : "--low-vram") +
        " has no effect on the cpu, where weights are used in place: choose --device sim or cuda");
  if (options.low_vram) options.after_job = AfterJob::release;
  if (spec.kind == device::DeviceKind::sim) card = device::sim::parse_card(spec.card_json);
  threads = options.threads > 0 ? options.threads : detail::physical_cores();
  // A GPU is planned with its own data, so it is opened before anything else; throws where there is none.
  if (spec.kind == device::DeviceKind::cuda) card = device::sim::parse_card(open().extras()->card_json());
}

Session::Impl::~Impl() {
  try {
    drop_slab();
    if (device && !device->in_place()) device->extras()->trim();
  } catch (const std::exception& e) {
    log_message(LogLevel::warning, std::string("while closing: ") + e.what());
  }
  entries.clear();  // host slabs are unlocked while the card is still ours
  const Impl* self = this;
  card_owner.compare_exchange_strong(self, nullptr);
}

device::Device& Session::Impl::open() {
  if (!device) {
    // Two sessions on one card would count each other's memory.
    const Impl* nobody = nullptr;
    if (capped() && !card_owner.compare_exchange_strong(nobody, this))
      throw UsageError(
          "another session of this process uses the card: close it first, or add the models to it");
    try {
      device = device::Device::open(spec);
    } catch (...) {
      card_owner.store(nullptr);
      throw;
    }
  }
  at::set_num_threads(threads);
  return *device;
}

ShapePlan Session::Impl::shape_plan(const Entry& entry, const graph::InputDescriptions& inputs) const {
  return detail::make_shape_plan(*entry.data, inputs, card, learned, threads);
}

void Session::Impl::replan(std::map<std::size_t, PlannedModel> models) {
  detail::SessionPlan fresh = detail::plan_session({.card = card,
                                                    .vram_cap = options.vram_cap,
                                                    .low_vram = options.low_vram,
                                                    .after_job = options.after_job},
                                                   std::move(models));
  drop_slab();
  for (Entry& entry : entries) {
    if (entry.loaded) entry.loaded->forget_device();
  }
  plan = std::move(fresh);
  context_charge.release();
  ledger = std::make_unique<memory::BudgetLedger>(plan->cap_bytes);
  context_charge = ledger->reserve(MemoryTag::context, plan->context_bytes, "the device's context");
  if (device && !device->in_place()) device->extras()->set_cap(plan->cap_bytes);
  for (auto& [index, model] : plan->models) {
    if (entries[index].loaded) entries[index].loaded->use_plan(model.residency);
  }
}

const ShapePlan& Session::Impl::planned_shape(std::size_t index, const graph::InputDescriptions& inputs) {
  const auto find = [&]() -> const ShapePlan* {
    if (!plan) return nullptr;
    const auto model = plan->models.find(index);
    if (model == plan->models.end()) return nullptr;
    for (const ShapePlan& shape : model->second.shapes)
      if (shape.inputs == inputs) return &shape;
    return nullptr;
  };
  if (const ShapePlan* known = find()) return *known;
  ShapePlan shape = shape_plan(entries[index], inputs);
  const bool fits = plan && plan->models.count(index) > 0 && shape.peak_bytes <= plan->job_bytes;
  if (fits) {  // the present slab leaves room for it
    auto& shapes = plan->models[index].shapes;
    if (shapes.size() >= kMaxShapePlans) shapes.erase(shapes.begin());
    shapes.push_back(std::move(shape));
    return shapes.back();
  }
  std::map<std::size_t, PlannedModel> models;
  if (plan) models = plan->models;
  models[index].data = entries[index].data;
  models[index].shapes.push_back(std::move(shape));
  replan(std::move(models));
  return *find();
}

LoadedModel& Session::Impl::load(std::size_t index) {
  Entry& entry = entries[index];
  if (!entry.loaded) {
    entry.loaded = std::make_unique<LoadedModel>(entry.data, open());
    if (capped()) {
      device->extras()->set_cap(plan->cap_bytes);
      entry.loaded->use_plan(plan->models.at(index).residency);
    }
  }
  return *entry.loaded;
}

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
    const JobScope scope(device->extras());
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

Session::Session(const SessionOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

ModelHandle Session::add(const Model& model, const ModelOptions& options) {
  const std::lock_guard lock(impl_->mutex);
  impl_->entries.push_back({model.shared_data(), options, nullptr});
  return {impl_->entries.size() - 1};
}

std::vector<PlanSummary> Session::plan_jobs(const std::vector<PlannedJob>& jobs) {
  const std::lock_guard lock(impl_->mutex);
  std::vector<std::pair<std::size_t, graph::InputDescriptions>> order;
  std::map<std::size_t, PlannedModel> models;
  for (const PlannedJob& job : jobs) {
    const Impl::Entry& entry = impl_->entries.at(job.model.index);
    graph::InputDescriptions inputs = entry.data->describe(job.shapes);
    PlannedModel& model = models[job.model.index];
    model.data = entry.data;
    bool known = false;
    for (const ShapePlan& shape : model.shapes) known = known || shape.inputs == inputs;
    if (known) continue;
    model.shapes.push_back(impl_->shape_plan(entry, inputs));
    order.emplace_back(job.model.index, std::move(inputs));
  }
  if (impl_->capped()) {
    impl_->replan(std::move(models));
    models = impl_->plan->models;
  }
  std::vector<PlanSummary> summaries;
  for (const auto& [index, inputs] : order) {
    for (const ShapePlan& shape : models[index].shapes) {
      if (!(shape.inputs == inputs)) continue;
      summaries.push_back(impl_->capped() ? detail::summarise(*impl_->plan, models[index], shape)
                                          : detail::summarise_in_place(models[index], shape));
    }
  }
  return summaries;
}

PlanSummary Session::plan(ModelHandle model, const InputShapes& shapes) {
  return plan_jobs({{model, shapes}}).front();
}

std::vector<PlanSummary> Session::planned() const {
  const std::lock_guard lock(impl_->mutex);
  std::vector<PlanSummary> summaries;
  if (!impl_->plan) return summaries;
  for (const auto& [index, model] : impl_->plan->models) {
    for (const ShapePlan& shape : model.shapes)
      summaries.push_back(detail::summarise(*impl_->plan, model, shape));
  }
  return summaries;
}

std::vector<at::Tensor> Session::run(ModelHandle model, const std::vector<at::Tensor>& inputs) {
  const std::lock_guard lock(impl_->mutex);
  if (model.index >= impl_->entries.size()) throw UsageError("no such model in this session");
  return impl_->run(model.index, inputs);
}

std::vector<CapPoint> Session::cap_curve() const {
  const std::lock_guard lock(impl_->mutex);
  if (!impl_->plan) return {};
  return detail::cap_curve({.card = impl_->card, .after_job = impl_->options.after_job}, *impl_->plan);
}

const JobStats& Session::last_job() const {
  return impl_->last;
}

SessionStats Session::stats() const {
  const std::lock_guard lock(impl_->mutex);
  SessionStats stats;
  stats.jobs = impl_->jobs;
  if (!impl_->device || impl_->device->in_place()) return stats;
  const device::DeviceExtras& extras = *impl_->device->extras();
  const device::DeviceCounters counters = extras.counters();
  stats.context_bytes = extras.context_bytes();
  stats.kept_bytes = impl_->plan ? impl_->plan->kept_bytes : 0;
  stats.library_bytes = extras.library_bytes();
  stats.peak_bytes = counters.peak_bytes;
  stats.reserved_peak_bytes = counters.reserved_peak_bytes;
  if (impl_->has_clocks()) {
    stats.modelled_s = counters.modelled_s;
    stats.stall_s = counters.stall_s;
  }
  stats.h2d_bytes = counters.h2d_bytes;
  stats.h2d_copies = counters.h2d_copies;
  stats.d2h_bytes = counters.d2h_bytes;
  stats.pinned_bytes = counters.pinned_bytes;
  return stats;
}

void Session::remember() {
  const std::lock_guard lock(impl_->mutex);
  impl_->learned.save();
}

void Session::trim() {
  const std::lock_guard lock(impl_->mutex);
  impl_->drop_slab();
  if (impl_->device && !impl_->device->in_place()) impl_->device->extras()->trim();
}

void Session::cancel(bool on) noexcept {
  impl_->cancelled.store(on, std::memory_order_relaxed);
}

bool Session::low_vram() const {
  return impl_->options.low_vram;
}

int Session::threads() const {
  return impl_->threads;
}

DeviceSummary Session::device_summary() const {
  const bool capped = impl_->capped();
  return {.name = capped ? impl_->card.name : "cpu",
          .kind = impl_->spec.kind == device::DeviceKind::sim ? "sim"
                  : capped                                    ? "cuda"
                                                              : "cpu",
          .total_bytes = capped ? std::optional<Bytes>(impl_->card.total_bytes) : std::nullopt};
}

std::optional<Bytes> Session::cap_bytes() const {
  return impl_->plan ? std::optional<Bytes>(impl_->plan->cap_bytes) : std::nullopt;
}

std::optional<Session::LowVramChoice> Session::low_vram_choice() const {
  return impl_->plan ? impl_->plan->low_vram : std::nullopt;
}

}  // namespace lowtide
