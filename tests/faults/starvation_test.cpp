// Whatever fails on the device, and whenever: a typed error, the device back at its baseline, and the next
// job right.
#include <doctest/doctest.h>

#include <string>

#include "faults/faulty_card.hpp"
#include "support/program.hpp"
#include "support/same_bits.hpp"

using namespace lowtide;
using namespace lowtide::test;

namespace {

struct Case {
  const char* archive;
  AfterJob after_job;
};
constexpr Case kCases[] = {{"blocks_12x64", AfterJob::release},
                           {"ocr_cls", AfterJob::keep},
                           {"zoo_dtypes", AfterJob::release},
                           {"zoo_dtypes", AfterJob::keep}};

std::string fault(const char* kind, std::uint64_t k) {
  return std::string("{\"") + kind + "\": " + std::to_string(k) + "}";
}

struct Starved {
  std::uint64_t failed = 0;
  std::uint64_t survived = 0;  // the job had its results all the same
};

/// Lets the k-th event of a kind fail, for k = 1, 2, ... until a job has fewer of them.
template <class Expected>
Starved starve(const Subject& subject, AfterJob after_job, const char* kind,
               std::uint64_t CardEvents::*count) {
  Starved starved;
  SessionOptions options = tight(subject);
  options.after_job = after_job;
  Session session(options);
  const ModelHandle handle = session.add(subject.model);
  REQUIRE(same_bits(session.run(handle, subject.inputs), subject.expected));
  const Bytes baseline = card_events().used_bytes;
  CHECK(baseline == *session.stats().kept_bytes);
  for (std::uint64_t k = 1;; ++k) {
    CAPTURE(k);
    inject(fault(kind, k));
    bool failed = false;
    try {
      const auto results = session.run(handle, subject.inputs);
      CHECK(same_bits(results, subject.expected));
    } catch (const Expected& error) {
      failed = true;
      CHECK(std::string(error.what()).find('\n') == std::string::npos);
    }
    if (card_events().*count < k) return starved;
    ++(failed ? starved.failed : starved.survived);
    inject("{}");
    CHECK(card_events().used_bytes <= baseline);
    CHECK(same_bits(session.run(handle, subject.inputs), subject.expected));
    CHECK(card_events().used_bytes == baseline);
  }
}

}  // namespace

TEST_CASE(
    "every allocation of a job fails once: weights are given back and the job goes on, or it fails alone") {
  set_log_sink([](LogLevel, const std::string&) {});
  Starved all;
  for (const auto& [archive, after_job] : kCases) {
    CAPTURE(archive);
    const Starved starved =
        starve<OutOfBudget>(Subject(archive), after_job, "allocation", &CardEvents::allocations);
    CHECK(starved.failed + starved.survived > 5);
    all.failed += starved.failed;
    all.survived += starved.survived;
  }
  MESSAGE(all.survived << " refused allocations survived, " << all.failed << " jobs failed");
  CHECK(all.survived > 20 * all.failed);
  set_log_sink({});
}

TEST_CASE("every copy of a job fails once") {
  for (const auto& [archive, after_job] : kCases) {
    CAPTURE(archive);
    const Starved starved = starve<DeviceError>(Subject(archive), after_job, "copy", &CardEvents::copies);
    CHECK(starved.failed >= 2);
    CHECK(starved.survived == 0);
  }
}

TEST_CASE("every page lock fails once: copies are slower then, results the same") {
  const TempFolder folder;
  for (const char* name : {"blocks_12x64", "ocr_cls", "zoo_dtypes"}) {
    CAPTURE(name);
    const Subject subject(name);
    std::uint64_t refused = 0;
    for (std::uint64_t k = 1;; ++k) {
      CAPTURE(k);
      write_text(folder / "card.json", "{\"faults\": " + fault("page_lock", k) + "}");
      std::vector<std::string> warnings;
      set_log_sink([&](LogLevel level, const std::string& message) {
        if (level == LogLevel::warning) warnings.push_back(message);
      });
      Session session(tight(subject, "sim:" + (folder / "card.json").string()));
      const ModelHandle handle = session.add(subject.model);
      CHECK(same_bits(session.run(handle, subject.inputs), subject.expected));
      CHECK(same_bits(session.run(handle, subject.inputs), subject.expected));
      CHECK(card_events().used_bytes == 0);
      set_log_sink({});
      if (card_events().page_locks < k) break;
      ++refused;
      REQUIRE(warnings.size() == 1);
      CHECK(warnings.front().find("page-lock") != std::string::npos);
    }
    CHECK(refused >= 1);
  }
}

TEST_CASE(
    "another program takes the card's memory in the middle of a job: that job fails, a later one works") {
  const Subject subject("blocks_12x64");
  Session session({.device = "sim:" + std::to_string(subject.tight_cap), .pattern = false});
  const ModelHandle handle = session.add(subject.model);
  session.run(handle, subject.inputs);
  for (const int at : {1, 5, 50}) {
    CAPTURE(at);
    inject("{\"other_program_bytes\": 1e9, \"other_program_at\": " + std::to_string(at) + "}");
    CHECK_THROWS_AS(session.run(handle, subject.inputs), OutOfBudget);
    inject("{}");
    CHECK(same_bits(session.run(handle, subject.inputs), subject.expected));
  }
}

TEST_CASE("a job whose memory has planned places does not feel that another program takes the rest") {
  const Subject subject("blocks_12x64");
  Session session({.device = "sim:" + std::to_string(subject.tight_cap)});
  const ModelHandle handle = session.add(subject.model);
  for (int job = 0; job < 3; ++job) session.run(handle, subject.inputs);
  inject("{\"other_program_bytes\": 1e9, \"other_program_at\": 5}");
  CHECK(same_bits(session.run(handle, subject.inputs), subject.expected));
  CHECK(*session.last_job().plan_misses == 0);
  inject("{}");
}
