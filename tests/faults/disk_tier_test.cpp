// Weights that come from disk under faults of the card: whenever copies are carried out, whatever is refused.
#include <doctest/doctest.h>

#include "faults/faulty_card.hpp"
#include "support/program.hpp"
#include "support/same_bits.hpp"

using namespace lowtide;
using namespace lowtide::test;

namespace {

/// Tight on the card and on the host: nothing is held that need not be.
SessionOptions tight_everywhere(const Subject& subject) {
  SessionOptions options = tight(subject);
  options.ram_cap = 0;
  Session session(options);
  try {
    session.plan(session.add(subject.model), subject.shapes);
  } catch (const RamCapTooSmall& e) {
    options.ram_cap = e.min_ram_cap();
  }
  // Weights are read once a pass here, so some need more room.
  Session asking({.device = "sim", .ram_cap = options.ram_cap});
  options.vram_cap =
      std::max(*options.vram_cap, *asking.plan(asking.add(subject.model), subject.shapes).min_cap_bytes);
  return options;
}

}  // namespace

TEST_CASE("whenever copies out of the ring are carried out, results have the bits of the resident run") {
  for (const char* name : {"blocks_12x64", "page_orientation", "zoo_dtypes"}) {
    CAPTURE(name);
    const Subject subject(name);
    Session session(tight_everywhere(subject));
    const ModelHandle handle = session.add(subject.model);
    REQUIRE(same_bits(session.run(handle, subject.inputs), subject.expected));
    for (int seed = 1; seed <= 20; ++seed) {
      CAPTURE(seed);
      inject("{\"order_seed\": " + std::to_string(seed) + "}");
      CHECK(same_bits(session.run(handle, subject.inputs), subject.expected));
    }
    inject("{}");
  }
}

TEST_CASE(
    "a refused allocation while weights come from disk: the job goes on or fails alone, and reading goes "
    "on") {
  set_log_sink([](LogLevel, const std::string&) {});
  for (const char* name : {"ocr_cls", "zoo_mutate_input"}) {
    CAPTURE(name);
    const Subject subject(name);
    Session session(tight_everywhere(subject));
    const ModelHandle handle = session.add(subject.model);
    REQUIRE(same_bits(session.run(handle, subject.inputs), subject.expected));
    const Bytes baseline = card_events().used_bytes;
    int survived = 0;
    for (std::uint64_t k = 1;; ++k) {
      CAPTURE(k);
      inject("{\"allocation\": " + std::to_string(k) + "}");
      try {
        CHECK(same_bits(session.run(handle, subject.inputs), subject.expected));
        ++survived;
      } catch (const OutOfBudget&) {
      }
      const bool last = card_events().allocations < k;
      inject("{}");
      CHECK(card_events().used_bytes <= baseline);
      CHECK(same_bits(session.run(handle, subject.inputs), subject.expected));
      CHECK(card_events().used_bytes == baseline);
      if (last) break;
    }
    CHECK(survived > 1);
  }
  set_log_sink({});
}

TEST_CASE("where the ring cannot be page-locked weights come all the same") {
  set_log_sink([](LogLevel, const std::string&) {});
  const Subject subject("page_orientation");
  const SessionOptions options = tight_everywhere(subject);
  {
    Session opens(options);  // the card, which faults are for
    opens.run(opens.add(subject.model), subject.inputs);
  }
  for (std::uint64_t k = 1; k <= 4; ++k) {
    CAPTURE(k);
    Session session(options);
    const ModelHandle handle = session.add(subject.model);
    inject("{\"page_lock\": " + std::to_string(k) + "}");
    CHECK(same_bits(session.run(handle, subject.inputs), subject.expected));
    inject("{}");
  }
  set_log_sink({});
}
