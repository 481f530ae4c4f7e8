// Copies and operators run in every order that the program allows, and only in those: whenever the card
// carries out waiting copies the bits are the same, and without any one of its waits the program is caught.
#include <doctest/doctest.h>

#include <cstdlib>

#include "faults/faulty_card.hpp"
#include "support/same_bits.hpp"

using namespace lowtide;
using namespace lowtide::test;

namespace {

/// Of different kinds; in zoo_dtypes weights are tied, viewed and empty.
constexpr const char* kArchives[] = {"blocks_12x64", "ocr_cls", "page_orientation", "silero_vad",
                                     "zoo_dtypes"};

int seed_count() {
  const char* text = std::getenv("LOWTIDE_SEEDS");
  return text != nullptr ? std::atoi(text) : 100;
}

}  // namespace

TEST_CASE("whenever waiting copies are carried out, results have the bits of the resident run") {
  const int seeds = seed_count();
  REQUIRE(seeds > 0);
  for (const char* name : kArchives) {
    CAPTURE(name);
    const Subject subject(name);
    Session session(tight(subject));
    const ModelHandle handle = session.add(subject.model);
    REQUIRE(same_bits(session.run(handle, subject.inputs), subject.expected));
    for (int seed = 1; seed <= seeds; ++seed) {
      CAPTURE(seed);
      inject("{\"order_seed\": " + std::to_string(seed) + "}");
      CHECK(same_bits(session.run(handle, subject.inputs), subject.expected));
    }
    inject("{}");
  }
}

TEST_CASE(
    "nearly every wait of the residency manager is necessary: without it the race checker stops the job") {
  for (const char* name : {"blocks_12x64", "page_orientation", "ocr_v6_rec"}) {
    CAPTURE(name);
    const Subject subject(name);
    Session session(tight(subject));
    const ModelHandle handle = session.add(subject.model);
    session.run(handle, subject.inputs);
    inject("{}");
    session.run(handle, subject.inputs);
    const std::uint64_t waits = card_events().waits;
    REQUIRE(waits > 0);
    std::uint64_t needless = 0;
    for (std::uint64_t k = 1; k <= waits; ++k) {
      CAPTURE(k);
      inject("{\"wait\": " + std::to_string(k) + "}");
      try {
        // Copies go in order, so one may wait for a step that only the copy in front of it had to wait for.
        const auto results = session.run(handle, subject.inputs);
        CHECK(same_bits(results, subject.expected));
        ++needless;
      } catch (const DeviceError& error) {
        CHECK(std::string(error.what()).find("not ordered after") != std::string::npos);
        CHECK(std::string(error.what()).find('\n') == std::string::npos);
      }
      inject("{}");
      CHECK(same_bits(session.run(handle, subject.inputs), subject.expected));
    }
    CHECK(needless * 10 <= waits);
  }
}
