#include "session/pattern_cache.hpp"

#include <doctest/doctest.h>

#include <string>

using lowtide::detail::make_pattern;
using lowtide::detail::PatternCache;
using lowtide::memory::RequestTrace;

namespace {

PatternCache::Pattern some_pattern(std::size_t requests = 1) {
  RequestTrace trace;
  trace.visits.push_back({1, 0});
  for (std::uint32_t i = 0; i < requests; ++i) trace.requests.push_back({512, i + 1});
  return make_pattern(trace);
}

}  // namespace

TEST_CASE("a pattern shares bytes between requests that never live together") {
  RequestTrace trace;
  trace.requests = {{1024, 2}, {512, 3}, {1024, 3}};
  trace.visits = {{7, 0}, {8, 2}};
  const auto pattern = make_pattern(trace);
  CHECK(pattern->region_bytes() == 1536);
  CHECK(pattern->live_peak() == 1536);
  REQUIRE(pattern->requests(7).size() == 2);
  REQUIRE(pattern->requests(8).size() == 1);
  CHECK(pattern->requests(7)[0].offset == pattern->requests(8)[0].offset);
  CHECK(pattern->requests(9).empty());
}

TEST_CASE("a pattern is found by its whole key, also where hashes are forged to be equal") {
  PatternCache cache(PatternCache::kMaxBytes, [](const std::string&) { return std::size_t{42}; });
  const auto one = some_pattern(), other = some_pattern();
  cache.put("ids i64[2, 64]", one);
  cache.put("ids i64[2, 512]", other);
  CHECK(cache.find("ids i64[2, 64]") == one);
  CHECK(cache.find("ids i64[2, 512]") == other);
  CHECK(cache.find("ids i64[2, 65]") == nullptr);
  cache.drop("ids i64[2, 64]");
  CHECK(cache.find("ids i64[2, 64]") == nullptr);
  CHECK(cache.find("ids i64[2, 512]") == other);
}

TEST_CASE("the pattern that was not asked for longest goes first") {
  const std::size_t each = [] {
    PatternCache cache;
    cache.put("a", some_pattern(100));
    return cache.host_bytes();
  }();
  PatternCache cache(2 * each);
  cache.put("a", some_pattern(100));
  cache.put("b", some_pattern(100));
  CHECK(cache.find("a") != nullptr);
  cache.put("c", some_pattern(100));
  CHECK(cache.size() == 2);
  CHECK(cache.find("b") == nullptr);
  CHECK(cache.find("a") != nullptr);
  CHECK(cache.host_bytes() == 2 * each);
}

TEST_CASE("the newest pattern stays, whatever it takes") {
  PatternCache cache(1);
  cache.put("a", some_pattern(1000));
  CHECK(cache.find("a") != nullptr);
  cache.put("b", some_pattern());
  CHECK(cache.size() == 1);
  CHECK(cache.find("b") != nullptr);
  cache.drop("b");
  CHECK(cache.host_bytes() == 0);
}
