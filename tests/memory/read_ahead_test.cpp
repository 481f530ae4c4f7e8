// Parts of a file in a given order, ahead of their use and never further than the ring reaches.
#include "memory/read_ahead.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <string>

#include "lowtide/error.hpp"
#include "numbered_file.hpp"

using namespace lowtide;
using memory::Extent;
using memory::FileIdentity;
using memory::kReadBlock;
using memory::ReadAhead;
using test::byte_at;
using test::NumberedFile;
using test::Ring;

namespace {

/// Takes everything; true if each byte is the right one.
bool takes(ReadAhead& reader, const std::vector<Extent>& order) {
  for (const Extent& extent : order) {
    for (Bytes done = 0; done < extent.bytes;) {
      const ReadAhead::Part part = reader.next();
      for (std::size_t i = 0; i < part.bytes.size(); ++i) {
        if (part.bytes[i] != byte_at(extent.offset + done + i)) return false;
      }
      done += part.bytes.size();
      if (part.ends_piece) reader.release();
    }
  }
  return true;
}

void wait_until_idle(const ReadAhead& reader) {
  Bytes before = 0;
  do {
    before = reader.bytes_read();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  } while (reader.bytes_read() != before);
}

std::atomic<Bytes> requested{0};
std::atomic<int> calls{0};
ssize_t counting_pread(int file, void* to, std::size_t bytes, off_t offset) {
  requested += bytes;
  ++calls;
  return ::pread(file, to, bytes, offset);
}
ssize_t failing_pread(int file, void* to, std::size_t bytes, off_t offset) {
  if (offset < 40 * static_cast<off_t>(kReadBlock)) return ::pread(file, to, bytes, offset);
  errno = EIO;
  return -1;
}
ssize_t short_pread(int file, void* to, std::size_t bytes, off_t offset) {
  return ::pread(file, to, std::min<std::size_t>(bytes, kReadBlock), offset);
}
ssize_t interrupted_pread(int file, void* to, std::size_t bytes, off_t offset) {
  if (++calls % 2 == 1) {
    errno = EINTR;
    return -1;
  }
  return ::pread(file, to, bytes, offset);
}

}  // namespace

TEST_CASE(
    "parts come in the order asked for, with the file's bytes, wherever they lie and whatever their size") {
  const NumberedFile file(300 * kReadBlock + 77);
  const std::vector<Extent> order{{64, 3},
                                  {67, 5 * kReadBlock},
                                  {200 * kReadBlock + 9, 20 * kReadBlock},
                                  {1, 1},
                                  {0, 0},
                                  {300 * kReadBlock, 77},
                                  {4096, 4096},
                                  {8192, 60000}};
  for (const Bytes piece : {kReadBlock, 3 * kReadBlock, 64 * kReadBlock}) {
    const Ring ring(2 * piece);
    ReadAhead reader(file.identity(), order, ring.span(), piece);
    CHECK(takes(reader, order));
    Bytes sum = 0;
    for (const Extent& extent : order) sum += extent.bytes;
    CHECK(reader.bytes_read() == sum);
    CHECK_THROWS_AS(reader.next(), std::logic_error);
  }
}

TEST_CASE("neighbours are read together, and no block twice") {
  const NumberedFile file(256 * kReadBlock);
  std::vector<Extent> order;  // with the gaps that zip headers leave
  for (Bytes at = 128; at + 10000 < 256 * kReadBlock; at += 10000 + 128) order.push_back({at, 10000});
  const Ring ring(3 * 32 * kReadBlock);
  requested = 0;
  calls = 0;
  ReadAhead reader(file.identity(), order, ring.span(), 32 * kReadBlock, counting_pread);
  CHECK(takes(reader, order));
  CHECK(requested <= 256 * kReadBlock);
  CHECK(calls == 8);
}

TEST_CASE("it reads ahead as far as the ring reaches and no further") {
  const NumberedFile file(64 * kReadBlock);
  const std::vector<Extent> order{{0, 64 * kReadBlock}};
  const Ring ring(4 * 2 * kReadBlock);
  ReadAhead reader(file.identity(), order, ring.span(), 2 * kReadBlock);
  CHECK(reader.pieces() == 4);
  wait_until_idle(reader);
  CHECK(reader.bytes_read() == 8 * kReadBlock);
  CHECK(reader.ready());
  CHECK(reader.next().ends_piece);
  wait_until_idle(reader);
  CHECK(reader.bytes_read() == 8 * kReadBlock);  // taken is not yet free
  reader.release();
  wait_until_idle(reader);
  CHECK(reader.bytes_read() == 10 * kReadBlock);
}

TEST_CASE(
    "an error in the middle comes where its bytes are due, with file and reason, and again if asked again") {
  const NumberedFile file(64 * kReadBlock);
  const std::vector<Extent> order{{0, 64 * kReadBlock}};
  const Ring ring(16 * 2 * kReadBlock);
  ReadAhead reader(file.identity(), order, ring.span(), 2 * kReadBlock, failing_pread);
  for (int i = 0; i < 20; ++i) {
    CHECK(reader.next().bytes.size() == 2 * kReadBlock);
    reader.release();
  }
  for (int i = 0; i < 2; ++i) {
    try {
      reader.next();
      FAIL("no error");
    } catch (const ArchiveError& e) {
      CHECK(std::string(e.what()).find(file.identity().path.string()) != std::string::npos);
      CHECK(std::string(e.what()).find("Input/output error; check the disk") != std::string::npos);
    }
  }
}

TEST_CASE("a file that became shorter, or was written to, is an error: at the start and on the way") {
  const NumberedFile file(64 * kReadBlock);
  const FileIdentity identity = file.identity();
  const std::vector<Extent> order{{0, 64 * kReadBlock}};
  const Ring ring(2 * 2 * kReadBlock);
  const auto take_all = [&](ReadAhead& reader) { takes(reader, order); };
  {
    ReadAhead reader(identity, order, ring.span(), 2 * kReadBlock);
    wait_until_idle(reader);
    file.shorten(30 * kReadBlock + 5);
    CHECK_THROWS_WITH_AS(take_all(reader), doctest::Contains("became shorter"), ArchiveError);
  }
  CHECK_THROWS_WITH_AS(ReadAhead(identity, order, ring.span(), 2 * kReadBlock),
                       doctest::Contains("became shorter"), ArchiveError);
  file.write();
  const FileIdentity again = file.identity();
  ReadAhead reader(again, order, ring.span(), 2 * kReadBlock);
  wait_until_idle(reader);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  file.write();  // same size, even the same bytes: nobody can know
  CHECK_THROWS_WITH_AS(take_all(reader), doctest::Contains("changed while it was in use"), ArchiveError);
  FileIdentity other = file.identity();
  ++other.modified_ns;
  CHECK_THROWS_AS(ReadAhead(other, order, ring.span(), 2 * kReadBlock), ArchiveError);
  other.path += ".not_there";
  CHECK_THROWS_WITH_AS(ReadAhead(other, order, ring.span(), 2 * kReadBlock), doctest::Contains("cannot open"),
                       ArchiveError);
}

TEST_CASE("it can be given up at any time: while the ring is full, while it reads, after an error") {
  const NumberedFile file(64 * kReadBlock);
  const std::vector<Extent> order{{0, 64 * kReadBlock}};
  const Ring ring(4 * kReadBlock);
  for (int i = 0; i < 200; ++i) {
    ReadAhead reader(file.identity(), order, ring.span(), kReadBlock, i % 2 == 0 ? ::pread : failing_pread);
    for (int k = 0; k < i % 5; ++k) reader.next();
    if (i % 10 == 0) wait_until_idle(reader);
  }
}

TEST_CASE("short and interrupted reads go on") {
  const NumberedFile file(64 * kReadBlock + 100);
  const std::vector<Extent> order{{10, 64 * kReadBlock}};
  const Ring ring(2 * 16 * kReadBlock);
  for (const ReadAhead::Pread pread : {short_pread, interrupted_pread}) {
    ReadAhead reader(file.identity(), order, ring.span(), 16 * kReadBlock, pread);
    CHECK(takes(reader, order));
  }
}
