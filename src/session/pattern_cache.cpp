#include "session/pattern_cache.hpp"

#include <utility>
#include <vector>

#include "plan/memory_layout.hpp"

namespace lowtide::detail {

std::shared_ptr<const memory::MemoryPattern> make_pattern(const memory::RequestTrace& trace) {
  std::vector<plan::Lifetime> blocks;
  for (std::uint32_t i = 0; i < trace.requests.size(); ++i)
    blocks.push_back({trace.requests[i].bytes, i, trace.requests[i].until});
  const plan::MemoryLayout layout = plan::lay_out(blocks);
  return std::make_shared<const memory::MemoryPattern>(trace, layout.offsets, layout.bytes,
                                                       plan::live_peak(blocks));
}

PatternCache::PatternCache(std::size_t max_bytes, Hash hash)
    : max_bytes_(max_bytes), by_key_(0, std::move(hash)) {}

PatternCache::Pattern PatternCache::find(const std::string& key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->pattern;
}

void PatternCache::put(const std::string& key, Pattern pattern) {
  drop(key);
  const std::size_t bytes = pattern->host_bytes() + sizeof(Entry) + 2 * key.size();
  entries_.push_front({key, std::move(pattern), bytes});
  by_key_[key] = entries_.begin();
  bytes_ += bytes;
  while (bytes_ > max_bytes_ && entries_.size() > 1) erase(std::prev(entries_.end()));
}

void PatternCache::drop(const std::string& key) {
  if (const auto found = by_key_.find(key); found != by_key_.end()) erase(found->second);
}

void PatternCache::erase(Entries::iterator entry) {
  bytes_ -= entry->bytes;
  by_key_.erase(entry->key);
  entries_.erase(entry);
}

}  // namespace lowtide::detail
