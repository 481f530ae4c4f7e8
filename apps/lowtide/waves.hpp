// Which jobs of a batch run together.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lowtide/run_jobs.hpp"

namespace lowtide::app {

/// Neighbouring jobs of one model, at most `limit(model)` of them. Waves of one run of jobs differ by one job
/// at most: 5 jobs under a limit of 4 go as 3 and 2. Where jobs are padded to buckets, waves of one bucket
/// are preferred as long as they do not become more. Jobs that cannot be tried travel with their neighbours
/// and count for nothing, so that the order of the batch stays. No wave is empty.
std::vector<std::span<const BatchJob>> cut_into_waves(
    std::span<const BatchJob> jobs, const std::function<std::size_t(const std::string& model)>& limit);

}  // namespace lowtide::app
