#include "lowtide/bytes.hpp"

#include <doctest/doctest.h>

#include "base/checked_math.hpp"
#include "base/sha256.hpp"
#include "lowtide/error.hpp"

using namespace lowtide;

TEST_CASE("a size is bytes, or a number with a unit of 1024 or 1000") {
  CHECK(parse_bytes("4096") == 4096);
  CHECK(parse_bytes("64MiB") == 64_MiB);
  CHECK(parse_bytes("1.5 GiB") == 1536_MiB);
  CHECK(parse_bytes("2KB") == 2000);
  CHECK(parse_bytes("3MB") == 3000000);
  CHECK(parse_bytes("18446744073709551615") == UINT64_MAX);
}

TEST_CASE("a size that cannot be read is refused with what it should look like") {
  for (const char* text : {"", "-1", "12Mi", "1e400GiB", "nan", "1.5", "99999999999GiB", "GiB", "0x10",
                           "18446744073709551616"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_bytes(text), UsageError);
  }
}

TEST_CASE("sizes print in the largest unit that keeps them above one") {
  CHECK(format_bytes(0) == "0 B");
  CHECK(format_bytes(1023) == "1023 B");
  CHECK(format_bytes(1536) == "1.5 KiB");
  CHECK(format_bytes(36_MiB + 700_KiB) == "36.7 MiB");
}

TEST_CASE("size arithmetic does not wrap around") {
  CHECK_FALSE(checked_add<std::int64_t>(INT64_MAX, 1).has_value());
  CHECK_FALSE(checked_mul<std::int64_t>(INT64_MAX / 2, 3).has_value());
  CHECK(checked_mul<std::int64_t>(-4, 3) == -12);
  CHECK(saturating_sub(3, 5) == 0);
  CHECK(round_up(1, 512) == 512);
  CHECK(round_up(1024, 512) == 1024);
  CHECK(round_up(UINT64_MAX, 512) == (UINT64_MAX & ~std::uint64_t{511}));
}

TEST_CASE("SHA-256 gives the published digest of 'abc', fed at once or in pieces") {
  const std::string digest =
      "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";  // FIPS 180-4, appendix
  Sha256 whole;
  whole.update("abc");
  CHECK(whole.hex() == digest);
  Sha256 pieces;
  pieces.update("a");
  pieces.update("bc");
  CHECK(pieces.hex() == digest);
}
