// Weights that cannot be page-locked, all or in part: same bits, same bytes over the link, little lost.
#include <doctest/doctest.h>

#include <algorithm>

#include "device/device.hpp"
#include "faults/faulty_card.hpp"
#include "residency/host_store.hpp"
#include "session/model_data.hpp"
#include "support/program.hpp"
#include "support/same_bits.hpp"

using namespace lowtide;
using namespace lowtide::test;

namespace {

struct Silence {
  Silence() {
    set_log_sink([](LogLevel, const std::string&) {});
  }
  ~Silence() { set_log_sink({}); }
};

}  // namespace

TEST_CASE("only as much is page-locked as the budget allows, and every unit has the archive's bytes") {
  const Silence silence;
  const auto data = detail::ModelData::open(std::string(LOWTIDE_MODELS) + "/minilm_l6.pt2", "");
  const device::Device device = device::Device::open(device::parse_device_spec("sim"));
  device::DeviceExtras& extras = *device.extras();
  const Bytes before = extras.counters().pinned_bytes;
  Bytes weights = 0;
  for (const plan::Unit& unit : data->packing().units) weights += unit.bytes;
  const auto store = [&](Bytes budget) {
    return residency::HostStore(data->file(), data->weights(), data->packing(), {}, &extras,
                                {.pin_budget = budget});
  };
  const residency::HostStore whole = store(UINT64_MAX);
  const Bytes all = extras.counters().pinned_bytes - before;
  CHECK(all >= weights);
  CHECK(static_cast<double>(all) <= 1.03 * static_cast<double>(weights));
  for (const Bytes budget : {Bytes{0}, all / 2, all - 1}) {
    CAPTURE(budget);
    const residency::HostStore part = store(budget);
    const Bytes locked = extras.counters().pinned_bytes - before - all;
    CHECK(locked <= budget);
    if (budget == 0) CHECK(locked == 0);
    Bytes said = 0;
    for (plan::UnitId id = 0; id < data->packing().units.size(); ++id) {
      const auto expected = whole.unit(data->packing(), id);
      const auto unit = part.unit(data->packing(), id);
      CHECK(whole.locked(expected.data()));
      REQUIRE(std::equal(unit.begin(), unit.end(), expected.begin(), expected.end()));
      if (part.locked(unit.data())) said += unit.size();
    }
    CHECK(said <= locked);
    CHECK(static_cast<double>(locked) <= 1.03 * static_cast<double>(said));
  }
  CHECK(extras.counters().pinned_bytes - before == all);
}

TEST_CASE(
    "weights that were not page-locked go through a ring that is: same bits, same bytes, not much slower") {
  const Silence silence;
  const TempFolder folder;
  const Subject subject("minilm_l6");
  write_text(folder / "card.json", "{\"faults\": {\"page_lock\": 1}}");
  JobStats with_ring, locked;
  for (const bool refused : {false, true}) {
    Session session(tight(subject, refused ? "sim:" + (folder / "card.json").string() : "sim"));
    const ModelHandle handle = session.add(subject.model);
    for (int job = 0; job < 2; ++job) CHECK(same_bits(session.run(handle, subject.inputs), subject.expected));
    (refused ? with_ring : locked) = session.last_job();
    if (refused) CHECK(session.stats().pinned_bytes < 32_MiB);  // the ring and the staging of inputs
  }
  CHECK(with_ring.h2d_bytes == locked.h2d_bytes);
  CHECK(*with_ring.used_after_bytes == *locked.used_after_bytes);
  CHECK(*with_ring.modelled_s < 1.25 * *locked.modelled_s);  // pageable copies would take twice as long
}

TEST_CASE("models with equal weights hold them once, and each keeps what it needs when the other goes") {
  const Silence silence;
  const auto data = detail::ModelData::open(std::string(LOWTIDE_MODELS) + "/minilm_l6.pt2", "");
  const device::Device device = device::Device::open(device::parse_device_spec("sim"));
  device::DeviceExtras& extras = *device.extras();
  const Bytes before = extras.counters().pinned_bytes;
  residency::WeightPool pool;
  const residency::HostStoreOptions options{.pin_budget = UINT64_MAX, .pool = &pool};
  const auto store = [&] {
    return std::make_unique<residency::HostStore>(data->file(), data->weights(), data->packing(),
                                                  data->host_tables(), &extras, options);
  };
  auto first = store();
  const Bytes once = extras.counters().pinned_bytes - before;
  CHECK(first->shared_bytes() == 0);
  const auto second = store();
  CHECK(extras.counters().pinned_bytes - before == once);
  Bytes units = 0;
  for (const plan::Unit& unit : data->packing().units) units += unit.bytes;
  CHECK(second->shared_bytes() >= units);
  first.reset();
  CHECK(extras.counters().pinned_bytes - before == once);  // still the second's
  const residency::HostStore alone(data->file(), data->weights(), data->packing(), {}, &extras,
                                   {.pin_budget = 0});
  for (plan::UnitId id = 0; id < data->packing().units.size(); ++id) {
    const auto expected = alone.unit(data->packing(), id);
    const auto unit = second->unit(data->packing(), id);
    REQUIRE(std::equal(unit.begin(), unit.end(), expected.begin(), expected.end()));
  }
}
