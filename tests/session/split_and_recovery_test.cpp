// Weights larger than the cap, and memory that goes missing while jobs run.
#include <ATen/ops/arange.h>
#include <doctest/doctest.h>

#include "faults/faulty_card.hpp"
#include "lowtide/lowtide.hpp"
#include "support/program.hpp"
#include "support/same_bits.hpp"

using namespace lowtide;
using namespace lowtide::test;

namespace {

constexpr Bytes kGiant = 16_MiB;  // the largest weight of both giants

struct Quiet {
  Quiet() {
    set_log_sink([this](LogLevel level, const std::string& line) {
      if (level != LogLevel::debug) lines.push_back(line);
    });
  }
  ~Quiet() { set_log_sink({}); }
  std::vector<std::string> lines;
};

double largest_difference(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    most = std::max(most, a[i].sub(b[i]).abs().max().item().toDouble());
  return most;
}

}  // namespace

TEST_CASE("a linear layer of 60 % of the cap runs as it is") {
  const Subject subject("giant_linear");
  Session session(
      {.device = "sim", .vram_cap = static_cast<Bytes>(kGiant / 0.6), .allow_split = true, .threads = 1});
  const ModelHandle handle = session.add(subject.model);
  const PlanSummary plan = session.plan(handle, subject.shapes);
  CHECK(plan.exact);
  CHECK(plan.split_weights == 0);
  CHECK(same_bits(session.run(handle, subject.inputs), subject.expected));
  CHECK(*session.last_job().peak_bytes <= *plan.peak_bytes);
}

TEST_CASE(
    "a linear layer of 120 % of the cap is refused with both smallest caps, and runs in chunks where that is "
    "allowed") {
  const Subject subject("giant_linear");
  const Bytes cap = static_cast<Bytes>(kGiant / 1.2);
  Session refused({.device = "sim", .vram_cap = cap});
  std::optional<Bytes> with_split;
  try {
    refused.run(refused.add(subject.model), subject.inputs);
    FAIL_CHECK("it was not refused");
  } catch (const PlanInfeasible& error) {
    CHECK(error.min_cap() > kGiant);
    with_split = error.min_cap_split();
    REQUIRE(with_split);
    CHECK(*with_split < cap);
    const std::string text = error.what();
    CHECK(text.find(std::to_string(error.min_cap())) != std::string::npos);
    CHECK(text.find("--allow-split " + std::to_string(*with_split)) != std::string::npos);
  }
  for (const Bytes allowed : {cap, *with_split}) {
    for (const AfterJob after_job : {AfterJob::keep, AfterJob::release}) {
      CAPTURE(allowed);
      Session session(
          {.device = "sim", .vram_cap = allowed, .after_job = after_job, .allow_split = true, .threads = 1});
      const ModelHandle handle = session.add(subject.model);
      const PlanSummary plan = session.plan(handle, subject.shapes);
      CHECK(!plan.exact);
      CHECK(plan.split_weights == 1);
      CHECK(*plan.min_cap_split_bytes == *with_split);
      for (int job = 0; job < 2; ++job) {
        const auto results = session.run(handle, subject.inputs);
        CHECK(largest_difference(results, subject.expected) < 1e-4);
        CHECK(*session.last_job().peak_bytes <= *plan.peak_bytes);
        CHECK(*plan.peak_bytes <= allowed);
      }
    }
  }
  Session one_less({.device = "sim", .vram_cap = *with_split - 1, .allow_split = true, .threads = 1});
  CHECK_THROWS_AS(one_less.run(one_less.add(subject.model), subject.inputs), PlanInfeasible);
}

TEST_CASE("an operator that cannot be split refuses before anything moves") {
  const Subject subject("giant_convolution");
  Session session(
      {.device = "sim", .vram_cap = static_cast<Bytes>(kGiant / 1.2), .allow_split = true, .threads = 1});
  const ModelHandle handle = session.add(subject.model);
  try {
    session.run(handle, subject.inputs);
    FAIL_CHECK("it was not refused");
  } catch (const PlanInfeasible& error) {
    CHECK(!error.min_cap_split());
    CHECK(std::string(error.what()).find("allow-split") == std::string::npos);
  }
  CHECK(session.stats().h2d_bytes == 0);
}

TEST_CASE("a refused allocation gives kept and prefetched weights back, and the job has its bits") {
  for (const char* name : {"blocks_12x64", "mixed_03", "mixed_09"}) {
    CAPTURE(name);
    Quiet quiet;
    const Subject subject(name);
    Session session({.device = "sim", .threads = 1});  // everything stays
    const ModelHandle handle = session.add(subject.model);
    session.run(handle, subject.inputs);
    const Bytes kept = *session.stats().kept_bytes;
    for (const int k : {1, 2, 5, 9}) {
      CAPTURE(k);
      inject("{\"allocation\": " + std::to_string(k) + "}");
      CHECK(same_bits(session.run(handle, subject.inputs), subject.expected));
      inject("{}");
      CHECK(same_bits(session.run(handle, subject.inputs), subject.expected));
      CHECK(*session.last_job().used_after_bytes == kept);
    }
    CHECK(!quiet.lines.empty());
  }
}

TEST_CASE("memory that goes missing under one model of several is taken from what the others kept") {
  Quiet quiet;
  const Subject often("mixed_03"), seldom("blocks_12x64");
  const auto plan_both = [&](Session& session) {
    std::vector<PlannedJob> jobs(20, {session.add(often.model), often.shapes});
    jobs.push_back({session.add(seldom.model), seldom.shapes});
    return session.plan_jobs(jobs);
  };
  Session roomy({.device = "sim", .threads = 1});
  const Bytes everything = *plan_both(roomy).front().peak_bytes;
  for (const double share : {1.0, 0.88}) {
    CAPTURE(share);
    Session session(
        {.device = "sim:" + std::to_string(static_cast<Bytes>(share * double(everything))), .threads = 1});
    const std::vector<PlanSummary> plans = plan_both(session);
    CHECK(plans[0].streamed_bytes_per_pass == 0);
    CHECK((plans[1].streamed_bytes_per_pass > 0) == (share < 1));  // its window is the smallest that works
    session.run({0}, often.inputs);
    session.run({1}, seldom.inputs);
    const Bytes kept = *session.stats().kept_bytes;
    for (const int at : {1, 4, 9}) {
      CAPTURE(at);
      inject("{\"other_program_bytes\": " + std::to_string(plans[0].resident_bytes / 2) +
             ", \"other_program_at\": " + std::to_string(at) + "}");
      CHECK(same_bits(session.run({1}, seldom.inputs), seldom.expected));
      inject("{}");
      CHECK(same_bits(session.run({0}, often.inputs), often.expected));
      CHECK(same_bits(session.run({1}, seldom.inputs), seldom.expected));
      CHECK(*session.last_job().used_after_bytes == kept);
    }
  }
  CHECK(!quiet.lines.empty());
}

TEST_CASE("a job of a wave that fails leaves it, and the others have their bits") {
  Quiet quiet;
  const Subject subject("blocks_12x64");
  Session session({.device = "sim", .wave = 4, .threads = 1});
  const ModelHandle handle = session.add(subject.model);
  std::vector<std::vector<at::Tensor>> jobs(6, subject.inputs);
  jobs[2] = {at::arange(6).view({2, 3}).add(5000000)};  // ids beyond the table
  jobs[4] = {at::arange(6)};                            // one dimension too few
  const std::vector<JobOutcome> outcomes = session.run_many(handle, jobs);
  REQUIRE(outcomes.size() == 6);
  for (std::size_t i = 0; i < 6; ++i) {
    CAPTURE(i);
    if (i == 2) {
      CHECK_THROWS_AS(std::rethrow_exception(outcomes[i].error), OperatorError);
    } else if (i == 4) {
      CHECK_THROWS_AS(std::rethrow_exception(outcomes[i].error), InputError);
    } else {
      REQUIRE(!outcomes[i].error);
      CHECK(same_bits(outcomes[i].outputs, subject.expected));
    }
  }
}

TEST_CASE(
    "where another program takes memory between jobs a smaller plan goes on, and the old one comes back with "
    "the memory") {
  Quiet quiet;
  const Subject subject("mixed_09");
  Bytes resident = 0;
  {
    Session session({.device = "sim", .threads = 1});
    resident = *session.plan(session.add(subject.model), subject.shapes).peak_bytes;
  }
  REQUIRE(subject.tight_cap + 65536 < resident);
  Session session({.device = "sim:" + std::to_string(resident), .threads = 1});
  const ModelHandle handle = session.add(subject.model);
  CHECK(same_bits(session.run(handle, subject.inputs), subject.expected));
  const Bytes kept = *session.stats().kept_bytes;
  inject("{\"other_program_bytes\": " + std::to_string(resident - subject.tight_cap - 65536) + "}");
  CHECK(same_bits(session.run(handle, subject.inputs), subject.expected));
  CHECK(*session.last_job().peak_bytes <= subject.tight_cap + 65536);
  CHECK(*session.last_job().used_after_bytes == *session.stats().kept_bytes);
  CHECK(*session.stats().kept_bytes < kept);
  REQUIRE(!quiet.lines.empty());
  CHECK(quiet.lines.back().find("smaller plan") != std::string::npos);
  inject("{\"other_program_bytes\": " + std::to_string(resident - 4096) + "}");
  CHECK_THROWS_AS(session.run(handle, subject.inputs), OutOfBudget);
  inject("{}");
  CHECK(same_bits(session.run(handle, subject.inputs), subject.expected));
  CHECK(*session.stats().kept_bytes == kept);
}

TEST_CASE("where memory goes missing before a wave, smaller waves go on and no job is left out") {
  Quiet quiet;
  const Subject subject("blocks_12x64");
  const std::vector<std::vector<at::Tensor>> jobs(8, subject.inputs);
  Bytes wave_peak = 0, least = 0;
  for (const int wave : {8, 1}) {
    Session session({.device = "sim", .wave = wave, .threads = 1});
    const std::vector<PlannedJob> planned(8, {session.add(subject.model), subject.shapes});
    const PlanSummary plan = session.plan_jobs(planned).front();
    if (wave == 8) wave_peak = *plan.peak_bytes;
    least = *plan.min_cap_bytes;
  }
  REQUIRE(least < wave_peak);
  Session session({.device = "sim:" + std::to_string(wave_peak), .wave = 0, .threads = 1});
  const ModelHandle handle = session.add(subject.model);
  for (const bool missing : {false, true, false}) {
    inject(missing ? "{\"other_program_bytes\": " + std::to_string(wave_peak - least) + "}"
                   : std::string("{}"));
    const std::vector<JobOutcome> outcomes = session.run_many(handle, jobs);
    for (const JobOutcome& outcome : outcomes) {
      REQUIRE(!outcome.error);
      CHECK(same_bits(outcome.outputs, subject.expected));
    }
  }
}

TEST_CASE("a wave of the shape that was planned first and of a new one finds both, however many are known") {
  const Subject subject("blocks_12x64");
  Session session({.device = "sim", .wave = 2, .threads = 1});
  const ModelHandle handle = session.add(subject.model);
  std::vector<PlannedJob> jobs;
  for (std::int64_t tokens = 2; tokens < 2 + 256; ++tokens)
    jobs.push_back({handle, {InputShape{{1, tokens}}}});
  session.plan_jobs(jobs);
  const auto outcomes =
      session.run_many(handle, {{at::arange(2).view({1, 2})}, {at::arange(4).view({2, 2})}});
  CHECK(!outcomes[0].error);
  CHECK(!outcomes[1].error);
}
