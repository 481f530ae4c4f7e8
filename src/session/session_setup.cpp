#include <ATen/Parallel.h>

#include "lowtide/log.hpp"
#include "session/physical_cores.hpp"
#include "session/session_impl.hpp"

namespace lowtide {

using detail::LoadedModel;
using detail::PlannedModel;
using detail::ShapePlan;
using memory::MemoryTag;

namespace {

/// Shapes whose plans are kept for one model; the oldest goes first.
constexpr std::size_t kMaxShapePlans = 256;

}  // namespace

Session::Impl::Impl(const SessionOptions& session_options)
    : options(session_options),
      spec(device::parse_device_spec(session_options.device)),
      learned(session_options.learned_file),
      patterns(session_options.ram_cap ? detail::kPatternBytesUnderCap : detail::PatternCache::kMaxBytes),
      pattern_store(session_options.learned_file.empty() ? "" : session_options.learned_file + ".runs") {
  if (!capped() && (options.vram_cap || options.low_vram))
    throw UsageError(
        std::string(options.vram_cap ? "--vram-cap" : "--low-vram") +
        " has no effect on the cpu, where weights are used in place: choose --device sim or cuda");
  if (!capped() && (options.wave != 1 || options.allow_split))
    throw UsageError(std::string(options.wave != 1 ? "--wave" : "--allow-split") +
                     " has no effect on the cpu, where no weights move: choose --device sim or cuda");
  const bool growth_given = options.arena != ArenaGrowth::same_as_requested;
  if (!has_clocks() && (!options.pattern || growth_given))
    throw UsageError(
        std::string(options.pattern ? "--arena" : "--pattern") +
        " has no effect on this device, where LibTorch's allocator chooses the places: leave it out");
  if (options.wave < 0) throw UsageError("a wave has at least one job: give a number from 1, or 0 for auto");
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
  ring = {};
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

detail::PlanRequest Session::Impl::plan_request() const {
  return {.card = card,
          .vram_cap = options.vram_cap,
          .low_vram = options.low_vram,
          .after_job = options.after_job,
          .wave = options.wave,
          .allow_split = options.allow_split,
          .ram_cap = options.ram_cap,
          .state_bytes = planned_state_bytes()};
}

/// On the device: of all models and twice, where state stays there (ModelState), else of one at a time.
Bytes Session::Impl::planned_state_bytes() const {
  const bool stays = options.after_job == AfterJob::keep;
  Bytes sum = 0, most = 0;
  for (const Entry& entry : entries) {
    if (!entry.state) continue;
    sum += 2 * entry.state->bytes();
    most = std::max(most, entry.state->bytes());
  }
  return stays ? sum : most;
}

void Session::Impl::replan(std::map<std::size_t, PlannedModel> models) {
  reduced_cap.reset();
  follow(detail::plan_session(plan_request(), std::move(models)));
}

/// Puts a plan in force: nothing is on the device then but the context.
void Session::Impl::follow(detail::SessionPlan fresh) {
  bring_states_home();
  drop_slab();
  // Where a model's share of host memory is another one, its weights are read anew.
  for (std::size_t i = 0; i < entries.size() && plan && plan->ram && fresh.ram; ++i) {
    const auto before = plan->ram->parts.find(i), now = fresh.ram->parts.find(i);
    const bool same =
        before != plan->ram->parts.end() && now != fresh.ram->parts.end() && before->second == now->second;
    if (!same) entries[i].loaded.reset();
  }
  for (Entry& entry : entries) {
    if (entry.loaded) entry.loaded->forget_device();
  }
  plan = std::move(fresh);
  context_charge.release();
  ledger = std::make_unique<memory::BudgetLedger>(plan->cap_bytes);
  context_charge = ledger->reserve(MemoryTag::context, plan->context_bytes, "the device's context");
  if (device && !device->in_place()) device->extras()->set_cap(plan->cap_bytes);
  for (auto& [index, model] : plan->models) {
    if (entries[index].loaded) entries[index].loaded->use_plan(model);
  }
}

const ShapePlan* Session::Impl::find_shape(std::size_t index, const graph::InputDescriptions& inputs) const {
  if (!plan) return nullptr;
  const auto model = plan->models.find(index);
  if (model == plan->models.end()) return nullptr;
  for (const ShapePlan& shape : model->second.shapes)
    if (shape.inputs == inputs) return &shape;
  return nullptr;
}

/// Is it in the plan? Then it is the last that would be let go.
bool Session::Impl::use_shape(std::size_t index, const graph::InputDescriptions& inputs) {
  const ShapePlan* known = find_shape(index, inputs);
  if (known == nullptr) return false;
  auto& shapes = plan->models.at(index).shapes;
  std::rotate(shapes.begin() + (known - shapes.data()), shapes.begin() + (known - shapes.data()) + 1,
              shapes.end());
  return true;
}

/// Makes sure that the plan in force covers a shape, of which so many jobs come.
void Session::Impl::plan_shape(std::size_t index, const graph::InputDescriptions& inputs,
                               std::size_t job_count) {
  const bool known = use_shape(index, inputs);
  const auto planned = plan ? plan->models.find(index) : std::map<std::size_t, PlannedModel>::iterator();
  const bool has_model = plan && planned != plan->models.end();
  // More jobs than were known of may be worth a wave, or a larger one, or more residents in their turn.
  const bool matters = has_model && (options.wave != 1 || plan->models.size() > 1);
  const bool enough_jobs = has_model && (!matters || job_count <= planned->second.jobs);
  if (known && enough_jobs) return;
  std::optional<ShapePlan> shape;
  if (!known) shape = shape_plan(entries[index], inputs);
  if (has_model && enough_jobs) {
    const detail::Variant& variant = *planned->second.variant;
    const Bytes spilled = variant.spill ? plan::spilled_bytes(shape->profile.memory, variant.walk) : 0;
    const Bytes host_need = static_cast<Bytes>(variant.walk.jobs) * (shape->host_bytes + 2 * spilled);
    const bool fits_host = !plan->ram || host_need <= plan->ram->jobs_bytes;
    const Bytes need = variant.walk.is_wave()
                           ? plan::wave_bytes(shape->profile.memory, variant.walk, variant.spill)
                           : shape->peak_bytes;
    if (shape->exact_sizes == planned->second.shapes.front().exact_sizes && variant.split_weights == 0 &&
        need <= plan->job_bytes && fits_host) {  // the present slab leaves room for it
      auto& shapes = planned->second.shapes;
      if (shapes.size() >= kMaxShapePlans) shapes.erase(shapes.begin());
      shapes.push_back(std::move(*shape));
      return;
    }
  }
  std::map<std::size_t, PlannedModel> models;
  if (plan) models = plan->models;
  models[index].data = entries[index].data;
  models[index].jobs = std::max(models[index].jobs, job_count);
  // Nobody said in which order jobs come: the models take turns.
  if (models.size() > 1) {
    for (auto& [other, model] : models) model.turns = std::max<std::size_t>(model.turns, 1);
  }
  if (shape) models[index].shapes.push_back(std::move(*shape));
  replan(std::move(models));
}

/// Plans for the cpu under a RAM cap. What was loaded for another plan goes.
void Session::Impl::plan_slots(std::map<std::size_t, PlannedModel> models) {
  detail::CpuPlan fresh = detail::plan_slots(*options.ram_cap, models);
  for (Entry& entry : entries) entry.loaded.reset();
  cpu_plan = std::move(fresh);
}

/// Makes sure that the slots leave room for a job of this shape.
void Session::Impl::make_room_for_slots(std::size_t index, const graph::InputDescriptions& inputs) {
  std::map<std::size_t, PlannedModel> models;
  if (cpu_plan) {
    if (const auto own = cpu_plan->models.find(index); own != cpu_plan->models.end()) {
      for (const ShapePlan& shape : own->second.shapes)
        if (shape.inputs == inputs) return;
    }
    for (const auto& [other, slots] : cpu_plan->models) {
      models[other].data = slots.data;
      models[other].shapes = slots.shapes;
    }
  }
  PlannedModel& model = models[index];
  model.data = entries[index].data;
  if (model.shapes.size() >= kMaxShapePlans) model.shapes.erase(model.shapes.begin());
  model.shapes.push_back(shape_plan(entries[index], inputs));
  const bool fits = cpu_plan && cpu_plan->models.contains(index) &&
                    detail::slot_job_bytes(model.shapes.back()) <= cpu_plan->ram.jobs_bytes;
  if (!fits) return plan_slots(std::move(models));
  cpu_plan->models.at(index).shapes = std::move(model.shapes);
}

const detail::RamPlan* Session::Impl::ram() const {
  if (cpu_plan) return &cpu_plan->ram;
  return plan && plan->ram ? &*plan->ram : nullptr;
}

/// The ring through which weights come from disk; one for all models.
void Session::Impl::lend_ring() {
  if (ram() == nullptr || ram()->ring_bytes == ring.bytes()) return;
  ring = {};
  device::DeviceExtras* extras = device->extras();
  ring = extras == nullptr ? memory::HostSlab::pageable(ram()->ring_bytes)
                           : memory::HostSlab(ram()->ring_bytes, *extras);
  if (extras != nullptr && ring.bytes() > 0 && !ring.locked())
    log_message(LogLevel::warning, "the system refused to page-lock the ring of " +
                                       format_bytes(ring.bytes()) +
                                       " for weights from disk: they are copied slower; raise the limit "
                                       "(ulimit -l) or close other programs");
  tier.ring = {ring.data(), ring.bytes()};
  tier.piece_bytes = ram()->piece_bytes;
}

LoadedModel& Session::Impl::load(std::size_t index) {
  Entry& entry = entries[index];
  open();
  lend_ring();
  if (!entry.loaded) {
    std::optional<detail::RamLoan> loan;
    if (ram() != nullptr) loan = {.part = &ram()->parts.at(index), .tier = &tier};
    entry.loaded = std::make_unique<LoadedModel>(entry.data, open(), pool, loan);
    if (capped()) {
      device->extras()->set_cap(plan->cap_bytes);
      entry.loaded->use_plan(plan->models.at(index));
    } else if (cpu_plan) {
      entry.loaded->use_slots(cpu_plan->models.at(index));
    }
  }
  return *entry.loaded;
}

}  // namespace lowtide
