#include "device/sim/work_queues.hpp"

#include <bit>
#include <utility>

namespace lowtide::device::sim {

void WorkQueues::push(StreamNumber stream, DeferredWork work) {
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<std::size_t>(stream);
  if (index >= queues_.size()) queues_.resize(index + 1);
  queues_[index].waiting.push_back(std::move(work));
  waiting_.fetch_add(1, std::memory_order_release);
}

std::uint64_t WorkQueues::accepted(StreamNumber stream) const {
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<std::size_t>(stream);
  if (index >= queues_.size()) return 0;
  return queues_[index].finished + queues_[index].waiting.size();
}

bool WorkQueues::done(StreamNumber stream, std::uint64_t position) const {
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<std::size_t>(stream);
  return index >= queues_.size() || queues_[index].waiting.empty() || queues_[index].finished >= position;
}

void WorkQueues::drain(Queue& queue, std::uint64_t position, std::vector<DeferredWork>& spent) {
  while (!queue.waiting.empty() && queue.finished < position) {
    spent.push_back(std::move(queue.waiting.front()));
    queue.waiting.pop_front();
    ++queue.finished;
    spent.back()();
    waiting_.fetch_sub(1,
                       std::memory_order_release);  // after the work: another thread may look without locking
  }
}

void WorkQueues::run_until(StreamNumber stream, std::uint64_t position) {
  std::vector<DeferredWork> spent;
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<std::size_t>(stream);
  if (index < queues_.size()) drain(queues_[index], position, spent);
}

void WorkQueues::run_some(std::uint64_t random) {
  if (waiting_.load(std::memory_order_acquire) == 0) return;
  std::vector<DeferredWork> spent;
  const std::lock_guard lock(mutex_);
  for (Queue& queue : queues_) {  // two bits a queue: none, one, two or three pieces
    drain(queue, queue.finished + (random & 3), spent);
    random = std::rotr(random, 2);
  }
}

void WorkQueues::run_all() {
  std::vector<DeferredWork> spent;
  const std::lock_guard lock(mutex_);
  for (Queue& queue : queues_) drain(queue, UINT64_MAX, spent);
}

}  // namespace lowtide::device::sim
