#include "session/ram_plan.hpp"

#include <algorithm>

#include "base/checked_math.hpp"
#include "memory/read_ahead.hpp"
#include "residency/host_store.hpp"

namespace lowtide::detail {
namespace {

/// What the program itself comes to beyond its start: LibTorch's tables and thread pools, the device's
/// registration, buffers for files and reports. Measured (docs/architecture.md) and rounded up.
constexpr Bytes kProgramBytes = 40_MiB;
/// Parsed graph with what plans and the executor know of it, per node and per weight; reading it is the peak.
constexpr Bytes kNodeBytes = 10 * 1024;
constexpr Bytes kWeightBytes = 2 * 1024;

constexpr Bytes kSmallestPiece = 256 * 1024;
constexpr Bytes kLargestPiece = 2_MiB;
constexpr Bytes kSmallestRing = 2 * kSmallestPiece;
constexpr Bytes kPieces = 8;
/// Of the room for weights, what the ring gets at most: what is held need not be read.
constexpr Bytes kRingShare = 4;
/// Of the room beside the fixed parts, what jobs of a wave may take at most where the planner chooses its
/// size.
constexpr Bytes kJobsShare = 4;
/// Memory for activations comes from the heap, which keeps some of what was freed.
constexpr double kHeapOverhead = 1.25;

bool is_table(const ModelData& model, std::uint32_t storage) {
  const auto& tables = model.host_tables();
  return std::find(tables.begin(), tables.end(), storage) != tables.end();
}

Bytes graph_bytes(const ModelData& model) {
  return model.program().graph.nodes.size() * kNodeBytes + model.weights().weights.size() * kWeightBytes;
}

Bytes table_bytes(const ModelData& model) {
  Bytes sum = 0;
  for (const std::uint32_t table : model.host_tables())
    sum += residency::stored_bytes(model.weights().files[table].bytes);
  return sum;
}

/// Whether a unit is a table as well: it is held for the lookups in any case.
bool held_as_table(const ModelData& model, const plan::Packing& packing, std::size_t unit) {
  return packing.content[unit].size() == 1 && is_table(model, packing.content[unit].front().storage);
}

Bytes weight_bytes(const ModelData& model) {
  Bytes sum = 0;
  for (std::size_t u = 0; u < model.packing().units.size(); ++u) {
    if (!held_as_table(model, model.packing(), u))
      sum += residency::stored_bytes(model.packing().units[u].bytes);
  }
  return sum;
}

/// Chooses units to hold in `room`: first those that are slow to read, since they are many small parts of the
/// file, and state; then large ones spread evenly, so that the disk and what is held take turns.
std::vector<bool> choose_held(const ModelData& model, Bytes room) {
  const plan::Packing& packing = model.packing();
  std::vector<bool> held(packing.units.size(), false);
  const auto size = [&](std::size_t u) { return residency::stored_bytes(packing.units[u].bytes); };
  const auto hold_if_fits = [&](std::size_t u) {
    if (held[u] || size(u) > room) return false;
    held[u] = true;
    room -= size(u);
    return true;
  };
  Bytes others = 0;
  for (std::size_t u = 0; u < held.size(); ++u) {
    if (held_as_table(model, packing, u)) {
      held[u] = true;
    } else if (!(packing.units[u].state || packing.content[u].size() > 1) || !hold_if_fits(u)) {
      others += size(u);
    }
  }
  const double share =
      others == 0 ? 1 : std::min(1.0, static_cast<double>(room) / static_cast<double>(others));
  double due = 0;
  for (std::size_t u = 0; u < held.size(); ++u) {
    if (held[u]) continue;
    due += share * static_cast<double>(size(u));
    if (static_cast<double>(size(u)) <= due && hold_if_fits(u)) due -= static_cast<double>(size(u));
  }
  for (std::size_t u = 0; u < held.size(); ++u) hold_if_fits(u);
  return held;
}

void set_ring(RamPlan& ram, Bytes room) {
  const Bytes wanted = std::clamp(room / kRingShare, kSmallestRing, kPieces * kLargestPiece);
  ram.piece_bytes =
      std::clamp(wanted / kPieces / memory::kReadBlock * memory::kReadBlock, kSmallestPiece, kLargestPiece);
  ram.ring_bytes = wanted / ram.piece_bytes * ram.piece_bytes;
}

[[noreturn]] void refuse(const RamPlan& ram, const std::string& weights) {
  throw RamCapTooSmall(
      "a RAM cap of " + std::to_string(ram.cap_bytes) + " bytes is too small: the smallest that works is " +
          std::to_string(ram.min_cap_bytes) + " (" + format_bytes(ram.min_cap_bytes) +
          "): program and graphs " + format_bytes(ram.program_bytes) + ", tables that are looked up " +
          format_bytes(ram.table_bytes) + ", jobs " + format_bytes(ram.jobs_bytes) + ", " + weights,
      ram.min_cap_bytes);
}

/// The parts that do not depend on the cap; jobs left out.
RamPlan fixed_parts(Bytes cap, const std::map<std::size_t, PlannedModel>& models) {
  RamPlan ram{.cap_bytes = cap, .program_bytes = kProgramBytes};
  for (const auto& [index, model] : models) {
    ram.program_bytes += graph_bytes(*model.data);
    ram.table_bytes += table_bytes(*model.data);
  }
  return ram;
}

}  // namespace

RamPlan divide_ram(Bytes cap, int wave, const std::map<std::size_t, PlannedModel>& models) {
  RamPlan ram = fixed_parts(cap, models);
  ram.program_bytes += kPatternBytesUnderCap;
  Bytes weights = 0, waves = 0;
  for (const auto& [index, model] : models) {
    weights += weight_bytes(*model.data);
    Bytes job = 0;
    for (const ShapePlan& shape : model.shapes) job = std::max(job, shape.host_bytes);
    const auto jobs =
        wave > 1 && model.data->no_waves().empty()
            ? std::min<std::size_t>(static_cast<std::size_t>(wave), std::max<std::size_t>(model.jobs, 1))
            : 1;
    ram.jobs_bytes = std::max(ram.jobs_bytes, job * jobs);
    if (wave != 1) waves = std::max(waves, job * std::max<std::size_t>(model.jobs, 1) * 2);
  }
  const Bytes fixed = ram.program_bytes + ram.table_bytes;
  ram.min_cap_bytes = fixed + ram.jobs_bytes + std::min(weights, kSmallestRing);
  if (cap < ram.min_cap_bytes) refuse(ram, "ring " + format_bytes(std::min(weights, kSmallestRing)));
  // The planner may choose larger waves, and let values wait in host memory, where there is plenty of room.
  ram.jobs_bytes = std::max(ram.jobs_bytes, std::min(waves, (cap - ram.min_cap_bytes) / kJobsShare));
  Bytes room = cap - fixed - ram.jobs_bytes;
  if (room < weights) {
    set_ring(ram, room);
    room -= ram.ring_bytes;
  }
  for (const auto& [index, model] : models) {
    const ModelData& data = *model.data;
    RamPart& part = ram.parts[index];
    part.on_disk.assign(data.weights().files.size(), false);
    const Bytes own = weight_bytes(data);
    const double share = weights == 0 ? 1 : static_cast<double>(own) / static_cast<double>(weights);
    const std::vector<bool> held =
        choose_held(data, room >= weights ? own : static_cast<Bytes>(share * static_cast<double>(room)));
    for (std::size_t u = 0; u < held.size(); ++u) {
      (held[u] ? part.held_bytes : part.disk_bytes) += data.packing().units[u].bytes;
      for (const plan::PackedStorage& piece : data.packing().content[u])
        part.on_disk[piece.storage] = !held[u];
    }
    for (const std::uint32_t table : data.host_tables()) {
      if (data.storage_uses()[table].uses.empty()) part.held_bytes += data.weights().files[table].bytes;
    }
  }
  return ram;
}

Bytes slot_job_bytes(const ShapePlan& shape) {
  return shape.host_bytes + static_cast<Bytes>(kHeapOverhead * static_cast<double>(shape.peak_bytes));
}

CpuPlan plan_slots(Bytes cap, const std::map<std::size_t, PlannedModel>& models) {
  CpuPlan result{.ram = fixed_parts(cap, models)};
  RamPlan& ram = result.ram;
  struct Search {
    plan::ResidencyProblem problem;
    std::unique_ptr<plan::ResidencySearch> search;
  };
  std::map<std::size_t, Search> searches;
  Bytes smallest = 0, full = 0;
  for (const auto& [index, model] : models) {
    for (const ShapePlan& shape : model.shapes)
      ram.jobs_bytes = std::max(ram.jobs_bytes, slot_job_bytes(shape));
    std::vector<plan::StorageUse> uses = model.data->storage_uses();
    for (const std::uint32_t table : model.data->host_tables()) uses[table].uses.clear();
    SlotPlan& slots = result.models[index];
    slots.data = model.data;
    slots.shapes = model.shapes;
    auto packing = std::make_shared<plan::Packing>(plan::pack_units(uses));
    Search& search = searches[index];
    search.problem.units = packing->units;
    for (plan::Unit& unit : search.problem.units) unit.packed = true;
    search.problem.steps = model.shapes.front().described.costs;
    search.problem.link = {.bytes_per_s = kAssumedDiskRate, .latency_s = 1e-4, .launch_s = 0};
    search.search = std::make_unique<plan::ResidencySearch>(search.problem);
    slots.packing = std::move(packing);
    smallest += search.search->min_slab_bytes();
    full += search.search->full_slab_bytes();
  }
  const Bytes fixed = ram.program_bytes + ram.table_bytes + ram.jobs_bytes;
  ram.min_cap_bytes = fixed + smallest + kSmallestRing;
  if (cap < ram.min_cap_bytes)
    refuse(ram, "weights " + format_bytes(smallest) + ", ring " + format_bytes(kSmallestRing));
  const Bytes spare = cap - ram.min_cap_bytes;
  set_ring(ram, spare + kSmallestRing);
  const Bytes left = spare + kSmallestRing - ram.ring_bytes;  // beyond the smallest slabs
  for (auto& [index, slots] : result.models) {
    const plan::ResidencySearch& search = *searches[index].search;
    const Bytes most = search.full_slab_bytes() - search.min_slab_bytes();
    const double share =
        full == smallest ? 0 : static_cast<double>(most) / static_cast<double>(full - smallest);
    const Bytes more = std::min(most, static_cast<Bytes>(share * static_cast<double>(left)));
    slots.residency = search.plan(search.min_slab_bytes() + more, /*keeps=*/true);
    RamPart& part = ram.parts[index];
    part.held_bytes = slots.residency.resident_bytes + table_bytes(*slots.data);
    part.slab_bytes = slots.residency.slab_bytes;
    part.disk_bytes = slots.residency.streamed_bytes;
    part.on_disk.assign(slots.data->weights().files.size(), true);
    for (const std::uint32_t table : slots.data->host_tables()) part.on_disk[table] = false;
  }
  return result;
}

void add_ram(PlanSummary& summary, const RamPlan& ram, const RamPart& part) {
  summary.ram = RamSummary{.cap_bytes = ram.cap_bytes,
                           .min_cap_bytes = ram.min_cap_bytes,
                           .program_bytes = ram.program_bytes,
                           .jobs_bytes = ram.jobs_bytes,
                           .ring_bytes = ram.ring_bytes,
                           .weight_bytes = part.held_bytes};
}

}  // namespace lowtide::detail
