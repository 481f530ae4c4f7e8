#include "lowtide/waves.hpp"

#include <algorithm>

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

/// Cuts jobs of one model. What cannot be tried stays with the jobs before it.
void cut(Jobs jobs, std::size_t limit, std::vector<Jobs>& waves) {
  const auto total = static_cast<std::size_t>(std::count_if(jobs.begin(), jobs.end(), can_be_tried));
  const std::size_t count = std::max<std::size_t>(1, (total + limit - 1) / limit);
  std::size_t begin = 0;
  for (std::size_t wave = 0; wave < count; ++wave) {
    std::size_t wanted = total / count + (wave < total % count ? 1 : 0);
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
