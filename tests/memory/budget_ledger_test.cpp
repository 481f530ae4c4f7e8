#include "memory/budget_ledger.hpp"

#include <doctest/doctest.h>

#include <thread>
#include <vector>

#include "lowtide/error.hpp"

using namespace lowtide;
using memory::BudgetLedger;
using memory::MemoryTag;
using memory::Reservation;

TEST_CASE("a charge is returned when it goes out of scope, also after a move") {
  BudgetLedger ledger(1000);
  {
    Reservation a = ledger.reserve(MemoryTag::weights, 600, "slab");
    Reservation b = std::move(a);
    CHECK(ledger.used() == 600);
    CHECK(ledger.used(MemoryTag::weights) == 600);
    b = ledger.reserve(MemoryTag::activations, 100, "job");
    CHECK(ledger.used() == 100);
    CHECK(ledger.used(MemoryTag::weights) == 0);
  }
  CHECK(ledger.used() == 0);
  CHECK(ledger.peak() == 700);
}

TEST_CASE("a charge beyond the cap is refused with want, cap and use by tag, and charges nothing") {
  BudgetLedger ledger(1000);
  const Reservation slab = ledger.reserve(MemoryTag::weights, 900, "slab");
  try {
    const Reservation job = ledger.reserve(MemoryTag::activations, 101, "the job");
    FAIL("was granted");
  } catch (const OutOfBudget& e) {
    CHECK(e.want() == 101);
    CHECK(e.cap() == 1000);
    const std::string message = e.what();
    CHECK(message.find("the job needs 101 bytes") != std::string::npos);
    CHECK(message.find("weights 900") != std::string::npos);
  }
  CHECK(ledger.used() == 900);
  const Reservation rest = ledger.reserve(MemoryTag::activations, 100, "exactly the rest");
  CHECK(ledger.used() == 1000);
}

TEST_CASE("sizes near the end of the number range are refused, not wrapped") {
  BudgetLedger ledger(1000);
  const Reservation some = ledger.reserve(MemoryTag::weights, 500, "slab");
  CHECK_THROWS_AS(ledger.reserve(MemoryTag::weights, UINT64_MAX - 100, "lie"), OutOfBudget);
}

TEST_CASE("charges from several threads add up and all come back") {
  BudgetLedger ledger(1 << 30);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        const Reservation r = ledger.reserve(MemoryTag::activations, 512, "job");
        if (ledger.used() > 4 * 512) throw std::logic_error("more than four charges at once");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(ledger.used() == 0);
}
