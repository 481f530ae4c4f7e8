#include "memory/slot_filler.hpp"

#include <cstring>

namespace lowtide::memory {

SlotFiller::SlotFiller(ReadAhead& reader) : reader_(reader), thread_([this] { work(); }) {}

SlotFiller::~SlotFiller() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  reader_.stop();
  thread_.join();
}

void SlotFiller::add(std::byte* to) {
  {
    const std::lock_guard lock(mutex_);
    places_.push_back(to);
    ++added_;
  }
  changed_.notify_all();
}

std::size_t SlotFiller::added() const {
  const std::lock_guard lock(mutex_);
  return added_;
}

void SlotFiller::wait_for(std::size_t parts) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return filled_ >= parts || error_; });
  if (filled_ < parts) std::rethrow_exception(error_);
}

/// Null when there is no more to do.
std::byte* SlotFiller::next_place() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stop_ || !places_.empty(); });
  if (stop_) return nullptr;
  std::byte* const place = places_.front();
  places_.pop_front();
  return place;
}

void SlotFiller::work() noexcept {
  while (std::byte* const place = next_place()) {
    std::exception_ptr error;
    try {
      const ReadAhead::Part part = reader_.next();
      std::memcpy(place, part.bytes.data(), part.bytes.size());
      if (part.ends_piece) reader_.release();
    } catch (...) {
      error = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      if (error) error_ = error;
      if (!error) ++filled_;
    }
    changed_.notify_all();
    if (error) return;
  }
}

}  // namespace lowtide::memory
