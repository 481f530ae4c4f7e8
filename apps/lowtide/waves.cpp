#include "lowtide/waves.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>

namespace lowtide::app {
namespace {

using Jobs = std::span<const BatchJob>;

bool can_be_tried(const BatchJob& job) {
  return job.error.empty();
}

/// Jobs at the front that need no other model than the first of them.
std::size_t same_model(Jobs jobs) {
  const BatchJob* first = nullptr;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (!can_be_tried(jobs[i])) continue;
    if (first != nullptr && jobs[i].model != first->model) return i;
    if (first == nullptr) first = &jobs[i];
  }
  return jobs.size();
}

/// Sizes of waves of at most `limit` that cover jobs with these buckets, in order: as few waves as possible,
/// and among those the ones with the fewest changes of the bucket inside a wave, and then the most equal
/// ones.
std::vector<std::size_t> sizes_by_bucket(const std::vector<const std::string*>& buckets, std::size_t limit) {
  struct Way {
    std::size_t waves = SIZE_MAX, changes = 0, squares = 0, last = 0;
    auto cost() const { return std::tie(waves, changes, squares); }
  };
  std::vector<Way> best(buckets.size() + 1);  // of the first so many jobs
  best[0].waves = 0;
  for (std::size_t end = 1; end <= buckets.size(); ++end) {
    std::size_t changes = 0;
    for (std::size_t size = 1; size <= std::min(limit, end); ++size) {
      const std::size_t begin = end - size;
      if (size > 1 && *buckets[begin] != *buckets[begin + 1]) ++changes;
      const Way& before = best[begin];
      const Way way{before.waves + 1, before.changes + changes, before.squares + size * size, size};
      if (way.cost() < best[end].cost()) best[end] = way;
    }
  }
  std::vector<std::size_t> sizes;
  for (std::size_t end = buckets.size(); end > 0; end -= sizes.back()) sizes.push_back(best[end].last);
  std::reverse(sizes.begin(), sizes.end());
  return sizes;
}

/// How many jobs that can be tried go into each wave.
std::vector<std::size_t> wave_sizes(Jobs jobs, std::size_t limit) {
  std::vector<const std::string*> buckets;
  for (const BatchJob& job : jobs)
    if (can_be_tried(job)) buckets.push_back(&job.bucket);
  const std::size_t total = buckets.size();
  const auto differs = [&](const std::string* bucket) { return *bucket != *buckets.front(); };
  if (std::any_of(buckets.begin(), buckets.end(), differs)) return sizes_by_bucket(buckets, limit);
  const std::size_t count = std::max<std::size_t>(1, (total + limit - 1) / limit);
  std::vector<std::size_t> sizes;
  for (std::size_t wave = 0; wave < count; ++wave)
    sizes.push_back(total / count + (wave < total % count ? 1 : 0));
  return sizes;
}

/// Cuts jobs of one model. What cannot be tried stays with the jobs before it.
void cut(Jobs jobs, std::size_t limit, std::vector<Jobs>& waves) {
  std::size_t begin = 0;
  for (std::size_t wanted : wave_sizes(jobs, limit)) {
    std::size_t end = begin;
    for (; end < jobs.size(); ++end) {
      if (!can_be_tried(jobs[end])) continue;
      if (wanted == 0) break;
      --wanted;
    }
    waves.push_back(jobs.subspan(begin, end - begin));
    begin = end;
  }
}

}  // namespace

std::vector<Jobs> cut_into_waves(Jobs jobs,
                                 const std::function<std::size_t(const std::string& model)>& limit) {
  std::vector<Jobs> waves;
  while (!jobs.empty()) {
    const Jobs run = jobs.first(same_model(jobs));
    const auto first = std::find_if(run.begin(), run.end(), can_be_tried);
    cut(run, first == run.end() ? 1 : std::max<std::size_t>(1, limit(first->model)), waves);
    jobs = jobs.subspan(run.size());
  }
  return waves;
}

}  // namespace lowtide::app
