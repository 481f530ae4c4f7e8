// Slots that a thread of its own fills: in order, only where they are free, and never after it was stopped.
#include "memory/slot_filler.hpp"

#include <doctest/doctest.h>

#include <cerrno>
#include <vector>

#include "lowtide/error.hpp"
#include "numbered_file.hpp"

using namespace lowtide;
using memory::Extent;
using memory::kReadBlock;
using memory::ReadAhead;
using memory::SlotFiller;
using test::byte_at;
using test::NumberedFile;
using test::Ring;

namespace {

constexpr Bytes kPiece = 4 * kReadBlock;
constexpr Bytes kFile = 20 * kReadBlock;

std::vector<std::byte> expected(const Extent& extent) {
  std::vector<std::byte> bytes(extent.bytes);
  for (Bytes i = 0; i < extent.bytes; ++i) bytes[i] = byte_at(extent.offset + i);
  return bytes;
}

/// Adds the parts of an extent, one behind the other in `slot`.
void add_extent(SlotFiller& filler, const ReadAhead& reader, std::vector<std::byte>& slot) {
  for (Bytes done = 0; done < slot.size();) {
    const Bytes bytes = reader.part_bytes(filler.added());
    filler.add(slot.data() + done);
    done += bytes;
  }
}

ssize_t fail_behind_two_pieces(int file, void* to, std::size_t bytes, off_t offset) {
  if (offset >= static_cast<off_t>(2 * kPiece)) {
    errno = EIO;
    return -1;
  }
  return ::pread(file, to, bytes, offset);
}

}  // namespace

TEST_SUITE("slot filler") {
  TEST_CASE("slots hold their parts of the file once they were waited for, whatever the order in the file") {
    const NumberedFile file(kFile);
    const Ring ring(2 * kPiece);
    const std::vector<Extent> order{
        {7 * kReadBlock + 64, 3 * kPiece}, {128, 1000}, {3 * kReadBlock, kPiece + 8}};
    ReadAhead reader(file.identity(), order, ring.span(), kPiece);
    SlotFiller filler(reader);
    std::vector<std::vector<std::byte>> slots;
    std::vector<std::size_t> parts;
    for (const Extent& extent : order) {
      slots.emplace_back(extent.bytes);
      add_extent(filler, reader, slots.back());
      parts.push_back(filler.added());
    }
    for (std::size_t i = 0; i < order.size(); ++i) {
      filler.wait_for(parts[i]);
      CHECK(slots[i] == expected(order[i]));
    }
  }

  TEST_CASE("one slot serves many parts when each is added after the one before was used") {
    const NumberedFile file(kFile);
    const Ring ring(2 * kPiece);
    std::vector<Extent> order;
    for (Bytes at = 0; at + 5000 <= kFile; at += 5000) order.push_back({at, 5000});
    ReadAhead reader(file.identity(), order, ring.span(), kPiece);
    SlotFiller filler(reader);
    std::vector<std::byte> slot(5000);
    for (const Extent& extent : order) {
      add_extent(filler, reader, slot);
      filler.wait_for(filler.added());
      CHECK(slot == expected(extent));
    }
  }

  TEST_CASE("an error of the disk is thrown to whoever waits for the part, and not before") {
    const NumberedFile file(kFile);
    const Ring ring(2 * kPiece);
    const std::vector<Extent> order{{0, kPiece}, {2 * kPiece, kPiece}};
    ReadAhead reader(file.identity(), order, ring.span(), kPiece, fail_behind_two_pieces);
    SlotFiller filler(reader);
    std::vector<std::byte> first(kPiece), second(kPiece);
    add_extent(filler, reader, first);
    const std::size_t parts = filler.added();
    add_extent(filler, reader, second);
    filler.wait_for(parts);
    CHECK(first == expected(order[0]));
    CHECK_THROWS_AS(filler.wait_for(filler.added()), ArchiveError);
    CHECK_THROWS_AS(filler.wait_for(filler.added()), ArchiveError);
  }

  TEST_CASE("it ends while parts are added that never arrive, and while none are") {
    const NumberedFile file(kFile);
    const Ring ring(2 * kPiece);
    const std::vector<Extent> order{{0, kFile}};
    for (const std::size_t added : {0, 1, 5}) {
      ReadAhead reader(file.identity(), order, ring.span(), kPiece);
      std::vector<std::byte> slot(kFile);
      SlotFiller filler(reader);
      for (std::size_t i = 0; i < added; ++i) filler.add(slot.data());
    }
  }

  TEST_CASE("a stopped reader ends the wait of the filler") {
    const NumberedFile file(kFile);
    const Ring ring(2 * kPiece);
    ReadAhead reader(file.identity(), std::vector<Extent>{{0, kFile}}, ring.span(), kPiece);
    SlotFiller filler(reader);
    reader.stop();
    std::vector<std::byte> slot(kFile);
    add_extent(filler, reader, slot);
    CHECK_THROWS_AS(filler.wait_for(filler.added()), Cancelled);
  }
}
