#include "lowtide/session.hpp"

#include <utility>

#include "base_torch/dtype_convert.hpp"
#include "lowtide/log.hpp"
#include "session/session_impl.hpp"

namespace lowtide {

using detail::PlannedModel;
using detail::ShapePlan;

namespace {

/// The plan serves every size up to the bucket. Which of them come is not known when it is made, so it does
/// not promise the bits of the unpadded job, although a job of the very size of the bucket has them.
void mark_padded(PlanSummary& summary) {
  summary.padded = true;
  summary.exact = false;
}

}  // namespace

Session::Session(const SessionOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

ModelHandle Session::add(const Model& model, const ModelOptions& options) {
  const std::lock_guard lock(impl_->mutex);
  Impl::Entry entry{.data = options.keep_state ? model.data().with_kept_state() : model.shared_data(),
                    .options = options,
                    .loaded = nullptr,
                    .buckets = detail::make_ladders(model.data(), options.shape_buckets)};
  if (options.keep_state) entry.state = std::make_unique<detail::ModelState>(entry.data);
  impl_->entries.push_back(std::move(entry));
  const graph::Program& program = model.data().program();
  if (const std::size_t open = graph::count_unevaluated(program); open > 0)
    log_message(LogLevel::info, "'" + model.path() + "': " + std::to_string(open) + " of " +
                                    std::to_string(program.guards.size()) +
                                    " guards are not evaluated, inspect says why");
  return {impl_->entries.size() - 1};
}

std::vector<PlanSummary> Session::plan_jobs(const std::vector<PlannedJob>& jobs) {
  const std::lock_guard lock(impl_->mutex);
  std::vector<std::pair<std::size_t, graph::InputDescriptions>> order;
  std::map<std::size_t, PlannedModel> models;
  std::size_t before = jobs.empty() ? 0 : jobs.back().model.index;  // the jobs come again and again
  for (const PlannedJob& job : jobs) {
    const Impl::Entry& entry = impl_->entries.at(job.model.index);
    graph::InputDescriptions inputs = entry.run_shapes(job.shapes);
    PlannedModel& model = models[job.model.index];
    model.data = entry.data;
    ++model.jobs;
    if (std::exchange(before, job.model.index) != job.model.index) ++model.turns;
    bool known = false;
    for (const ShapePlan& shape : model.shapes) known = known || shape.inputs == inputs;
    if (known) continue;
    model.shapes.push_back(impl_->shape_plan(entry, inputs));
    order.emplace_back(job.model.index, std::move(inputs));
  }
  if (impl_->capped()) {
    impl_->replan(std::move(models));
  } else if (impl_->options.ram_cap) {
    impl_->plan_slots(models);
  }
  std::vector<PlanSummary> summaries;
  for (const auto& [index, inputs] : order) {
    const PlannedModel& model = impl_->capped() ? impl_->plan->models.at(index) : models.at(index);
    for (const ShapePlan& shape : model.shapes) {
      if (!(shape.inputs == inputs)) continue;
      summaries.push_back(impl_->capped() ? detail::summarise(*impl_->plan, model, shape)
                                          : detail::summarise_in_place(model, shape));
      if (impl_->entries.at(index).buckets) mark_padded(summaries.back());
      if (!impl_->cpu_plan) continue;
      const detail::RamPart& part = impl_->cpu_plan->ram.parts.at(index);
      detail::add_ram(summaries.back(), impl_->cpu_plan->ram, part);
      summaries.back().disk_bytes_per_pass = part.disk_bytes;
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
    for (const ShapePlan& shape : model.shapes) {
      summaries.push_back(detail::summarise(*impl_->plan, model, shape));
      if (impl_->entries.at(index).buckets) mark_padded(summaries.back());
    }
  }
  return summaries;
}

std::vector<at::Tensor> Session::run(ModelHandle model, const std::vector<at::Tensor>& inputs) {
  const std::lock_guard lock(impl_->mutex);
  if (model.index >= impl_->entries.size()) throw UsageError("no such model in this session");
  return impl_->run(model.index, inputs);
}

std::vector<JobOutcome> Session::run_many(ModelHandle model,
                                          const std::vector<std::vector<at::Tensor>>& jobs) {
  const std::lock_guard lock(impl_->mutex);
  if (model.index >= impl_->entries.size()) throw UsageError("no such model in this session");
  return impl_->run_padded(model.index, jobs);
}

std::vector<CapPoint> Session::cap_curve() const {
  const std::lock_guard lock(impl_->mutex);
  if (!impl_->plan) return {};
  return detail::cap_curve(impl_->plan_request(), *impl_->plan);
}

const JobStats& Session::last_job() const {
  return impl_->last;
}

SessionStats Session::stats() const {
  const std::lock_guard lock(impl_->mutex);
  SessionStats stats;
  stats.jobs = impl_->jobs;
  if (impl_->options.ram_cap) stats.disk_read_bytes = impl_->tier.bytes_read;
  if (!impl_->device || impl_->device->in_place()) return stats;
  const device::DeviceExtras& extras = *impl_->device->extras();
  const device::DeviceCounters counters = extras.counters();
  stats.context_bytes = extras.context_bytes();
  stats.kept_bytes = impl_->plan ? impl_->plan->kept_bytes : 0;
  stats.library_bytes = extras.library_bytes();
  stats.peak_bytes = counters.peak_bytes;
  stats.reserved_peak_bytes = counters.reserved_peak_bytes;
  stats.live_peak_bytes = counters.live_peak_bytes;
  stats.patterns = impl_->patterns.size();
  stats.pattern_bytes = impl_->patterns.host_bytes();
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
  if (impl_->device) impl_->bring_states_home();
  impl_->drop_slab();
  if (impl_->device && !impl_->device->in_place()) impl_->device->extras()->trim();
  for (Impl::Entry& entry : impl_->entries) {
    if (entry.loaded && impl_->cpu_plan) entry.loaded->forget_device();
  }
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
          .kind = device::kind_name(impl_->spec.kind),
          .total_bytes = capped ? std::optional<Bytes>(impl_->card.total_bytes) : std::nullopt};
}

std::optional<Bytes> Session::cap_bytes() const {
  return impl_->plan ? std::optional<Bytes>(impl_->plan->cap_bytes) : std::nullopt;
}

std::optional<Bytes> Session::ram_cap_bytes() const {
  return impl_->options.ram_cap;
}

std::optional<Session::LowVramChoice> Session::low_vram_choice() const {
  return impl_->plan ? impl_->plan->low_vram : std::nullopt;
}

}  // namespace lowtide
