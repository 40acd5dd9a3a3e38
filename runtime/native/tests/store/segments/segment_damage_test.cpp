// Whatever is wrong with a file is said by map() or verify(), with the section's name, and stops
// nothing.
#include <string>

#include "anabranch/store/errors.h"
#include "anabranch/store/segment.h"
#include "check.h"
#include "damage.h"

using namespace anabranch::store;
using namespace anabranch::testing;
using segment_layout::Header;
using segment_layout::Record;

namespace {

void read_bytes(const Bytes& bytes) { read_all(MemoryFile(bytes).fd()); }

// The sample with one field changed, and all checksums right.
template <class T>
Bytes with(Bytes bytes, std::size_t offset, T value) {
  set_value(bytes, offset, value);
  reseal(bytes);
  return bytes;
}

// Where the first table's first slot with a key of the groups is.
std::size_t first_slot(const Bytes& bytes) {
  std::size_t at = value_at<Record>(bytes, record_offset(bytes, 0)).off_index;
  while (value_at<std::uint64_t>(bytes, at) == kEmptyKey) at += sizeof(Slot);
  return at;
}

std::size_t side_slots(const Bytes& bytes) {
  const auto record = value_at<Record>(bytes, record_offset(bytes, 0));
  return record.off_index + record.groups * sizeof(Group);
}

}  // namespace

TEST(every_flipped_byte_is_noticed) {
  const Bytes bytes = sample_segment();
  const auto header = value_at<Header>(bytes, 0);
  MemoryFile file(bytes);
  read_all(file.fd());
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    const bool telling = at < 80 || at >= header.off_directory;
    for (std::size_t bit = 0; bit < 8; ++bit) {
      if (!telling && bit != at % 8) continue;
      const std::byte flipped = bytes[at] ^ static_cast<std::byte>(1 << bit);
      file.write(at, {&flipped, 1});
      try {
        read_all(file.fd());
        CHECK_EQ("unnoticed at byte", std::to_string(at));
      } catch (const Damaged&) {
      }
    }
    file.write(at, {&bytes[at], 1});
  }
  read_all(file.fd());
}

TEST(every_truncation_and_every_extension_is_noticed) {
  const Bytes bytes = sample_segment();
  MemoryFile file(bytes);
  for (std::size_t size = bytes.size(); size-- > 0;) {
    file.resize(size);
    CHECK_THROWS(Damaged, "header: ", Segment::map(file.fd()));
    if (size % 64 == 0) CHECK_THROWS(Damaged, "header: ", Segment::copy(file.fd()));
  }
  Bytes longer = bytes;
  longer.push_back(std::byte{0});
  CHECK_THROWS(Damaged, "header: it tells of", read_bytes(longer));
}

TEST(foreign_files_are_told_from_damaged_ones) {
  const Bytes bytes = sample_segment();
  CHECK_THROWS(Foreign, "big-endian", read_bytes(with(bytes, 8, 0x04030201u)));
  CHECK_THROWS(Foreign, "format 2, this version knows up to 1", read_bytes(with(bytes, 12, 2u)));
  CHECK_THROWS(Damaged, "format 0", read_bytes(with(bytes, 12, 0u)));
  CHECK_THROWS(Damaged, "unknown byte order", read_bytes(with(bytes, 8, 5u)));
  CHECK_THROWS(Damaged, "does not begin as a segment", read_bytes(with(bytes, 0, 5u)));
  CHECK_THROWS(Damaged, "does not begin as a segment", read_bytes(Bytes(10000)));
}

TEST(headers_that_contradict_the_file_are_refused) {
  const Bytes bytes = sample_segment();
  for (const std::uint64_t value :
       {std::uint64_t{0}, std::uint64_t{63}, std::uint64_t{1} << 40, ~std::uint64_t{0},
        ~std::uint64_t{63}, std::uint64_t{bytes.size()}}) {
    for (const std::size_t field :
         {offsetof(Header, off_directory), offsetof(Header, directory_bytes),
          offsetof(Header, off_checksums)}) {
      CHECK_THROWS(Damaged, "header: its sections do not fill",
                   read_bytes(with(bytes, field, value)));
    }
    if (value != bytes.size()) {
      CHECK_THROWS(Damaged, "header: it tells of",
                   read_bytes(with(bytes, offsetof(Header, file_bytes), value)));
    }
  }
  for (const std::uint32_t tables : {100u, 65537u, ~0u}) {
    CHECK_THROWS(Damaged, "header: its sections",
                 read_bytes(with(bytes, offsetof(Header, tables), tables)));
  }
}

TEST(directories_that_lead_outside_are_refused) {
  const Bytes bytes = sample_segment();
  const std::size_t record = record_offset(bytes, 0);
  const auto field = [&](std::size_t offset, auto value, const char* message) {
    CHECK_THROWS(Damaged, message, read_bytes(with(bytes, record + offset, value)));
  };
  for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{4097}, ~std::uint64_t{63},
                                     std::uint64_t{bytes.size() / 64 * 64}}) {
    field(offsetof(Record, off_rows), offset, "table \"items\": rows do not lie inside");
    field(offsetof(Record, off_keys), offset, "table \"items\": keys do not lie inside");
    field(offsetof(Record, off_index), offset, "table \"items\": index groups do not lie inside");
  }
  for (const std::uint64_t groups : {std::uint64_t{0}, groups_for(40) - 1, groups_for(40) + 1,
                                     std::uint64_t{1} << 58, ~std::uint64_t{0}}) {
    field(offsetof(Record, groups), groups, "an index of impossible size");
  }
  field(offsetof(Record, rows), std::uint32_t{1} << 31, "too many rows");
  field(offsetof(Record, rows), 41u, "an index of impossible size");
  field(offsetof(Record, dim), 0u, "1 to 1024");
  field(offsetof(Record, dim), 1025u, "1 to 1024");
  field(offsetof(Record, dim), 1024u, "rows do not lie inside");
  field(offsetof(Record, row_type), 4u, "unknown row type");
  field(offsetof(Record, key_kind), 2u, "unknown kind of keys");
  field(offsetof(Record, key_kind), 1u, "dense ids have no index");
  for (const std::uint32_t name : {5000u, ~0u}) {
    field(offsetof(Record, name_offset), name, "table 0 has no name");
    field(offsetof(Record, name_bytes), name, "table 0 has no name");
  }
  field(offsetof(Record, name_bytes), 0u, "table 0 has no name");
  const auto other = value_at<Record>(bytes, record + sizeof(Record));
  field(offsetof(Record, name_offset), other.name_offset, "table 1 has no name of its own");
}

// Whoever copies an index takes memory for it: what the file has as a hole must not ask for any.
TEST(an_index_that_is_a_hole_is_refused) {
  using namespace segment_layout;
  const Bytes bytes = sample_segment();
  const auto header = value_at<Header>(bytes, 0);
  constexpr std::uint64_t kGroups = std::uint64_t{1} << 30;  // 64 GiB
  auto directory = Bytes(bytes.begin() + static_cast<std::ptrdiff_t>(header.off_directory),
                         bytes.begin() + static_cast<std::ptrdiff_t>(header.off_checksums));
  set_value(directory, 2 * sizeof(Record) + offsetof(Record, groups), kGroups);
  const std::uint64_t hole = round_up(bytes.size(), kAlignment);
  set_value(directory, 2 * sizeof(Record) + offsetof(Record, off_index), hole);
  Header large = header;
  large.off_directory = hole + (kGroups + 1) * sizeof(Group);
  large.directory_crc = anabranch::crc32c(directory);
  large.off_checksums = large.off_directory + directory.size();
  large.file_bytes = large.off_checksums + 4 * block_count(large.off_checksums) + sizeof(Footer);
  large.crc = anabranch::crc32c(bytes_of(large).first(offsetof(Header, crc)));
  Footer footer{};
  std::memcpy(footer.magic, kFooterMagic, sizeof kFooterMagic);
  footer.header_crc = large.crc;
  footer.checksums_crc = large.checksums_crc;

  MemoryFile file(std::span<const std::byte>(bytes).first(header.off_directory));
  file.resize(large.file_bytes);
  file.write(0, bytes_of(large));
  file.write(large.off_directory, directory);
  file.write(large.file_bytes - sizeof footer, bytes_of(footer));
  CHECK_THROWS(Damaged, "table \"none\": an index of impossible size", Segment::map(file.fd()));
}

TEST(an_index_that_leads_astray_is_refused) {
  const Bytes bytes = sample_segment();
  const std::size_t slot = first_slot(bytes);
  const std::size_t side = side_slots(bytes);
  const auto key = value_at<std::uint64_t>(bytes, slot);
  const auto rv = value_at<std::uint64_t>(bytes, slot + 8);
  const auto fault = [&](std::size_t offset, std::uint64_t value, const char* message) {
    const Bytes damaged = with(bytes, offset, value);
    const auto segment = Segment::map(MemoryFile(damaged).fd());
    CHECK_THROWS(Damaged, message, segment->check_index(0));
    CHECK_THROWS(Damaged, message, segment->verify());
    CHECK_THROWS(Damaged, "table \"items\": ", segment->verify());
    CHECK(segment->probes(0).most <= segment->tables()[0].groups);
  };
  fault(slot + 8, make_rv(40, 1), "a row that is not there");
  fault(slot + 8, make_rv(kMaxRow, 1), "a row that is not there");
  fault(slot + 8, make_rv(row_of(rv), 2), "a version of its own");
  fault(slot + 8, make_rv(row_of(rv), 0), "a version of its own");
  fault(slot + 8, make_rv(row_of(rv) | kTombstone, 1), "a version of its own");
  fault(slot, kDeadKey, "a dead slot");
  fault(slot, kEmptyKey, "an empty slot with a row");
  fault(slot / 64 * 64 + 3 * 16 + 8, kOverflow | make_rv(0, 1), "a mark that is the first slot's");
  fault(side + 8, make_rv(40, 1), "a side slot of no use");
  fault(side + 8, 0, "its index has 39 keys for 40 rows");
  fault(side + 16, 5, "a side slot of no use");
  fault(side + 24, make_rv(1, 1) | kOverflow, "a side slot of no use");
  fault(side + 24, 0, "a key without a row");
  fault(side + 40, make_rv(1, 1), "a side slot of no use");
  // A key that does not lie where a lookup begins.
  const auto record = value_at<Record>(bytes, record_offset(bytes, 0));
  std::uint64_t stray = key + 1;
  while (home_group(stray, record.seed, record.groups) ==
         home_group(key, record.seed, record.groups)) {
    ++stray;
  }
  fault(slot, stray, "a key behind a group with room");
}

TEST(keys_that_are_not_those_of_the_index_are_refused) {
  const Bytes bytes = sample_segment();
  const auto record = value_at<Record>(bytes, record_offset(bytes, 0));
  const auto second = value_at<std::uint64_t>(bytes, record.off_keys + 8 * 3);
  for (const std::uint64_t key : {std::uint64_t{123456789}, kEmptyKey, kDeadKey, second}) {
    const auto segment = Segment::map(MemoryFile(with(bytes, record.off_keys + 8 * 2, key)).fd());
    segment->check_index(0);
    CHECK_THROWS(Damaged, "table \"items\": keys and index disagree about row 2",
                 segment->verify());
  }
}

TEST(checksums_name_the_section_and_the_table) {
  const Folder folder;
  constexpr std::size_t kRows = 50000;
  SegmentWriter writer(folder.path(), "a.seg", 1);
  for (const char* name : {"first", "second"}) {
    writer.begin_table(name, {RowType::kF32, 16}, KeyKind::kHashed, kRows, Duplicates::kRefuse);
    std::vector<std::uint64_t> keys(kRows);
    for (std::size_t i = 0; i < kRows; ++i) keys[i] = i * i;
    writer.add(keys, std::vector<float>(kRows * 16, 1.0F));
  }
  writer.finish();
  const Bytes bytes = bytes_of_file(folder.path("a.seg"));
  const SegmentTable second = map_file(folder.path("a.seg"))->tables()[1];
  const auto fault = [&](std::size_t offset, const char* message) {
    Bytes damaged = bytes;
    damaged[offset] ^= std::byte{1};
    const auto segment = Segment::map(MemoryFile(damaged).fd());
    CHECK_THROWS(Damaged, message, segment->verify());
  };
  fault(second.off_rows, "segment table \"second\": rows: the checksum of bytes");
  fault(second.off_keys, "table \"second\": keys");
  fault(second.off_index + 100, "table \"second\": index groups");
  fault(4096, "padding: the checksum of bytes 4096 to 1048576");
  fault(value_at<Header>(bytes, 0).off_checksums, "checksums: their own does not match");
}

TEST(descriptors_that_are_no_file_are_refused) {
  CHECK_THROWS(std::system_error, "cannot open a segment", Segment::map(-1));
  int ends[2];
  CHECK_EQ(::pipe(ends), 0);
  CHECK_THROWS(std::system_error, "a segment is a regular file", Segment::map(ends[0]));
  CHECK_THROWS(std::system_error, "a segment is a regular file", Segment::copy(ends[0]));
  for (const int fd : ends) ::close(fd);
  const Folder folder;
  write_file(folder.path("a.seg"), sample_segment());
  const int unreadable = ::open(folder.path("a.seg").c_str(), O_WRONLY);
  CHECK_THROWS(std::system_error, "cannot read a segment", Segment::map(unreadable));
  ::close(unreadable);
}

int main() { return anabranch::testing::run_tests(); }
