// The cap as a ledger: bytes are charged before they are allocated and given back by the charge's destructor.
#pragma once

#include <array>
#include <mutex>
#include <string>

#include "lowtide/bytes.hpp"
#include "memory/memory_tag.hpp"

namespace lowtide::memory {

class BudgetLedger;

/// A charge that returns itself. Move-only; must not outlive its ledger.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation() { release(); }

  /// Gives the bytes back now. Harmless when there are none.
  void release() noexcept;
  Bytes bytes() const { return bytes_; }

 private:
  friend class BudgetLedger;
  Reservation(BudgetLedger& ledger, MemoryTag tag, Bytes bytes)
      : ledger_(&ledger), tag_(tag), bytes_(bytes) {}

  BudgetLedger* ledger_ = nullptr;
  MemoryTag tag_ = MemoryTag::context;
  Bytes bytes_ = 0;
};

/// Thread-safe.
class BudgetLedger {
 public:
  explicit BudgetLedger(Bytes cap) : cap_(cap) {}
  BudgetLedger(const BudgetLedger&) = delete;
  BudgetLedger& operator=(const BudgetLedger&) = delete;

  /// Charges `bytes`, or throws OutOfBudget naming `what`, the want, the cap and the use by tag.
  Reservation reserve(MemoryTag tag, Bytes bytes, const std::string& what);

  Bytes cap() const { return cap_; }
  Bytes used() const;
  Bytes used(MemoryTag tag) const;
  Bytes peak() const;

 private:
  friend class Reservation;
  void give_back(MemoryTag tag, Bytes bytes) noexcept;

  const Bytes cap_;
  mutable std::mutex mutex_;
  std::array<Bytes, kTagNames.size()> by_tag_{};
  Bytes used_ = 0;
  Bytes peak_ = 0;
};

}  // namespace lowtide::memory
