#include "lowtide/waves.hpp"

#include <doctest/doctest.h>

using namespace lowtide::app;

namespace {

/// "aab!a": jobs of models a and b, and one that cannot be tried.
std::vector<BatchJob> jobs_of(const std::string& models) {
  std::vector<BatchJob> jobs;
  for (const char model : models) {
    jobs.push_back({.id = std::to_string(jobs.size())});
    (model == '!' ? jobs.back().error : jobs.back().model) = model;
  }
  return jobs;
}

/// The same letters with a blank between two waves. Model a runs in waves of `limit`, all others alone.
std::string cut(const std::string& models, std::size_t limit) {
  const std::vector<BatchJob> jobs = jobs_of(models);
  std::string text;
  for (const auto& wave :
       cut_into_waves(jobs, [&](const std::string& model) { return model == "a" ? limit : 1; })) {
    CHECK_FALSE(wave.empty());
    if (!text.empty()) text += ' ';
    for (const BatchJob& job : wave) text += job.error.empty() ? job.model : job.error;
  }
  return text;
}

}  // namespace

TEST_CASE("waves of one run of jobs are as large as the limit allows and differ by one at most") {
  CHECK(cut("aaaaa", 4) == "aaa aa");
  CHECK(cut("aaaaa", 5) == "aaaaa");
  CHECK(cut("aaaaaaa", 3) == "aaa aa aa");
  CHECK(cut("aaa", 32) == "aaa");
  CHECK(cut("aaa", 1) == "a a a");
  CHECK(cut("aaa", 0) == "a a a");
  CHECK(cut("", 4) == "");
}

TEST_CASE("a wave holds one model, and the order of the batch stays") {
  CHECK(cut("aabaaa", 4) == "aa b aaa");
  CHECK(cut("bbaab", 4) == "b b aa b");
}

TEST_CASE("jobs that cannot be tried keep their place and take none of a wave's") {
  CHECK(cut("a!aaa", 4) == "a!aaa");
  CHECK(cut("!!aaaa!", 2) == "!!aa aa!");
  CHECK(cut("aa!b!aa", 4) == "aa! b! aa");
  CHECK(cut("!!!", 4) == "!!!");
  CHECK(cut("a!a", 1) == "a! a");
}

namespace {

/// Jobs of one model, a letter for the bucket of each.
std::string cut_buckets(const std::string& buckets, std::size_t limit) {
  std::vector<BatchJob> jobs;
  for (const char bucket : buckets) {
    jobs.push_back({.model = "a"});
    (bucket == '!' ? jobs.back().error : jobs.back().bucket) = bucket;
  }
  std::string text;
  for (const auto& wave : cut_into_waves(jobs, [&](const std::string&) { return limit; })) {
    if (!text.empty()) text += ' ';
    for (const BatchJob& job : wave) text += job.error.empty() ? job.bucket : job.error;
  }
  return text;
}

}  // namespace

TEST_CASE("waves prefer jobs of one bucket as long as they do not become more, in the order of the batch") {
  CHECK(cut_buckets("44448888", 4) == "4444 8888");
  CHECK(cut_buckets("448888", 4) == "44 8888");
  CHECK(cut_buckets("4448", 3) == "444 8");
  CHECK(cut_buckets("44488", 4) == "444 88");
  CHECK(cut_buckets("4!44888!", 4) == "4!44 888!");
  CHECK(cut_buckets("484848", 3) == "484 848");
  CHECK(cut_buckets("48", 4) == "48");
  CHECK(cut_buckets("4488", 1) == "4 4 8 8");
  CHECK(cut_buckets("4444444", 3) == "444 44 44");
}
