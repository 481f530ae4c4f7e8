#include "memory/budget_ledger.hpp"

#include <algorithm>
#include <utility>

#include "base/checked_math.hpp"
#include "lowtide/error.hpp"

namespace lowtide::memory {

Reservation::Reservation(Reservation&& other) noexcept
    : ledger_(std::exchange(other.ledger_, nullptr)),
      tag_(other.tag_),
      bytes_(std::exchange(other.bytes_, 0)) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    release();
    ledger_ = std::exchange(other.ledger_, nullptr);
    tag_ = other.tag_;
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void Reservation::release() noexcept {
  if (ledger_ != nullptr) ledger_->give_back(tag_, bytes_);
  ledger_ = nullptr;
  bytes_ = 0;
}

Reservation BudgetLedger::reserve(MemoryTag tag, Bytes bytes, const std::string& what) {
  const std::lock_guard lock(mutex_);
  if (bytes > saturating_sub(cap_, used_)) {
    std::string message = what + " needs " + std::to_string(bytes) + " bytes, but " +
                          std::to_string(saturating_sub(cap_, used_)) + " of the cap of " +
                          std::to_string(cap_) + " are left (";
    for (std::size_t i = 0; i < by_tag_.size(); ++i)
      message += (i ? ", " : "") + std::string(kTagNames[i]) + " " + std::to_string(by_tag_[i]);
    throw OutOfBudget(message + "); raise --vram-cap", bytes, cap_);
  }
  used_ += bytes;
  by_tag_[static_cast<std::size_t>(tag)] += bytes;
  peak_ = std::max(peak_, used_);
  return Reservation(*this, tag, bytes);
}

void BudgetLedger::give_back(MemoryTag tag, Bytes bytes) noexcept {
  const std::lock_guard lock(mutex_);
  used_ -= bytes;
  by_tag_[static_cast<std::size_t>(tag)] -= bytes;
}

Bytes BudgetLedger::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

Bytes BudgetLedger::used(MemoryTag tag) const {
  const std::lock_guard lock(mutex_);
  return by_tag_[static_cast<std::size_t>(tag)];
}

Bytes BudgetLedger::peak() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

}  // namespace lowtide::memory
