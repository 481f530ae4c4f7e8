#include "graph/dtype.hpp"

#include <doctest/doctest.h>

using namespace lowtide::graph;

TEST_CASE("each element type of the export schema has a name that leads back to it, and a size") {
  int count = 0;
  for (int code = -5; code < 300; ++code) {
    const auto dtype = dtype_from_schema(code);
    if (!dtype) continue;
    ++count;
    CHECK(static_cast<int>(*dtype) == code);
    CHECK(dtype_from_name(dtype_name(*dtype)) == *dtype);
    CHECK((element_size(*dtype) == 0) == (*dtype == DType::unknown));
  }
  CHECK(count == 19);
  CHECK_FALSE(dtype_from_schema((std::int64_t{1} << 32) + 7).has_value());
  CHECK_FALSE(dtype_from_name("float").has_value());
  CHECK(element_size(DType::c64) == 8);
  CHECK(element_size(DType::bf16) == 2);
}
