// Whatever the bytes of a generation are: mapping it says no, or every read stays inside.
#include <sys/mman.h>
#include <sys/stat.h>

#include <random>
#include <system_error>

#include "anabranch/crc32c.h"
#include "anabranch/store/errors.h"
#include "check.h"
#include "store/writer/generation_layout.h"
#include "store/writer/stores.h"

using namespace anabranch::store;
using namespace anabranch::testing;

namespace {

constexpr std::uint32_t kLastVersion = 6;
using Bytes = std::vector<std::byte>;

std::shared_ptr<const Segment> sample_segment() {
  return segment_of({{.name = "h", .base = counted(1, 10)},
                     {.name = "d", .keys = KeyKind::kDenseId, .base = counted(0, 100)}});
}

// The memory of a store after some changes.
Bytes sample_generation(const std::shared_ptr<const Segment>& segment) {
  const Capacity capacities[] = {{40, 20}, {40, 0}};
  const auto writer = StoreWriter::create(segment, capacities);
  while (writer->version() < kLastVersion) {
    Change change = writer->begin();
    upsert(change, 0, 4, {1, 2, 30, 0}, {1, 2, 3, 4});
    upsert(change, 1, 4, {5, 70}, {5, 6});
    change.erase(0, std::vector<std::uint64_t>{1});
    change.apply();
  }
  Bytes bytes(writer->generation()->bytes());
  CHECK_EQ(::pread(writer->fd(), bytes.data(), bytes.size(), 0),
           static_cast<ssize_t>(bytes.size()));
  return bytes;
}

int memory_of(std::span<const std::byte> bytes, int seals = F_SEAL_SHRINK) {
  const int fd = ::memfd_create("damaged", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  CHECK_EQ(::write(fd, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  CHECK_EQ(::fcntl(fd, F_ADD_SEALS, seals), 0);
  return fd;
}

std::shared_ptr<const Generation> map(std::span<const std::byte> bytes,
                                      const std::shared_ptr<const Segment>& segment) {
  const int fd = memory_of(bytes);
  struct Close {
    int fd;
    ~Close() { ::close(fd); }
  } close{fd};
  return Generation::map(fd, segment);
}

void set_word(Bytes& bytes, std::size_t offset, std::uint64_t value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

// Makes the checksum of the layout right again.
void sign(Bytes& bytes) {
  GenerationHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  header.checksum = 0;
  std::memcpy(bytes.data(), &header, sizeof header);
  header.checksum =
      anabranch::crc32c(std::span(bytes).first(sizeof(GenerationHeader) + 2 * sizeof(TableRecord)));
  std::memcpy(bytes.data(), &header, sizeof header);
}

bool lies_inside(const std::byte* row, std::size_t stride, const std::byte* begin,
                 std::uint64_t rows) {
  return row >= begin && row + stride <= begin + rows * stride;
}

// Looks up everything at every version; rows have to lie where rows may.
void read_all(const Generation& generation) {
  std::uint64_t sum = 0;
  for (const TableView& table : generation.tables()) {
    const std::size_t stride = table.format.stride();
    for (std::uint32_t version = 0; version <= kLastVersion + 1; ++version) {
      for (std::uint64_t key = 0; key < 110; ++key) {
        const std::byte* row = find_row(table, key < 105 ? key : ~(key - 105), version);
        if (row == nullptr) continue;
        CHECK(lies_inside(row, stride, table.base, table.base_rows) ||
              lies_inside(row, stride, table.arena, table.arena_rows));
        for (std::size_t i = 0; i < stride; ++i) sum += std::to_integer<std::uint64_t>(row[i]);
      }
    }
  }
  CHECK(sum != 1);  // the bytes were read
}

}  // namespace

TEST(a_sound_copy_is_mapped) {
  const auto segment = sample_segment();
  const auto generation = map(sample_generation(segment), segment);
  CHECK_EQ(tag_at(generation->tables()[0], 30, kLastVersion), 3u);
  CHECK_EQ(tag_at(generation->tables()[1], 70, kLastVersion), 6u);
  read_all(*generation);
}

TEST(header_faults_have_their_own_messages) {
  const auto segment = sample_segment();
  const Bytes sound = sample_generation(segment);
  const auto with = [&](std::size_t offset, std::uint64_t value, bool signed_again) {
    Bytes bytes = sound;
    set_word(bytes, offset, value);
    if (signed_again) sign(bytes);
    map(bytes, segment);
  };
  const std::size_t table = sizeof(GenerationHeader);
  CHECK_THROWS(Damaged, "no generation", with(0, 0, false));
  CHECK_THROWS(Foreign, "byte order", with(8, std::uint64_t{1} << 32 | 0x04030201, false));
  CHECK_THROWS(Foreign, "format 2, this reader knows 1",
               with(8, std::uint64_t{2} << 32 | 0x01020304, false));
  CHECK_THROWS(Damaged, "its size", with(16, 4096, true));
  CHECK_THROWS(Damaged, "another segment", with(24, 3, true));
  CHECK_THROWS(Damaged, "another segment", with(40, 8, true));
  CHECK_THROWS(Damaged, "checksum", with(table, 0, false));
  CHECK_THROWS(Damaged, "'h' is not the one", with(table, std::uint64_t{5} << 32, true));
  CHECK_THROWS(Damaged, "'h' has more rows", with(table + 16, ~std::uint64_t{0} >> 32, true));
  CHECK_THROWS(Damaged, "'h' has an impossible index", with(table + 32, 0, true));
  CHECK_THROWS(Damaged, "'h' has an impossible index", with(table + 32, ~std::uint64_t{0}, true));
  for (std::size_t offset = 40; offset < sizeof(TableRecord); offset += 8) {
    CHECK_THROWS(Damaged, "leaves the memory", with(table + offset, ~std::uint64_t{63}, true));
    CHECK_THROWS(Damaged, "leaves the memory", with(table + offset, 4, true));
  }
}

TEST(a_generation_of_another_segment_is_refused) {
  const auto segment = sample_segment();
  const Bytes bytes = sample_generation(segment);
  const auto other =
      segment_of({{.name = "h", .base = counted(1, 11)},
                  {.name = "d", .keys = KeyKind::kDenseId, .base = counted(0, 100)}});
  CHECK_THROWS(Damaged, "'h' is not the one of this segment", map(bytes, other));
}

TEST(descriptors_that_are_no_generation_are_refused) {
  const auto segment = sample_segment();
  const Bytes bytes = sample_generation(segment);
  const int unsealed = memory_of(bytes, F_SEAL_GROW);
  CHECK_THROWS(Damaged, "not sealed", Generation::map(unsealed, segment));
  ::close(unsealed);
  CHECK_THROWS(std::system_error, "cannot open", Generation::map(-1, segment));
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{63}, std::size_t{64}, bytes.size() - 1}) {
    CHECK_THROWS(Damaged, "generation: it", map(std::span(bytes).first(size), segment));
  }
}

TEST(nobody_else_can_write_a_generation) {
  const Capacity capacities[] = {{40, 20}, {40, 0}};
  const auto writer = StoreWriter::create(sample_segment(), capacities);
  CHECK(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, writer->fd(), 0) == MAP_FAILED);
  CHECK_EQ(::ftruncate(writer->fd(), 4096), -1);
  const std::uint64_t word = 0;
  CHECK_EQ(::pwrite(writer->fd(), &word, sizeof word, 0), -1);
  struct stat status{};
  CHECK_EQ(::fstat(writer->fd(), &status), 0);
  CHECK_EQ(status.st_mode & 0777, 0600u);
}

TEST(mutated_words_lead_no_read_outside) {
  const auto segment = sample_segment();
  const Bytes sound = sample_generation(segment);
  const std::size_t records = sizeof(GenerationHeader) + 2 * sizeof(TableRecord);
  std::mt19937_64 random(1);
  const auto some_word = [&]() -> std::uint64_t {
    switch (random() % 4) {
      case 0:
        return random();
      case 1:
        return ~std::uint64_t{0} >> random() % 64;
      case 2:  // an rv that looks sound
        return make_rv(static_cast<std::uint32_t>(random() % 160), 1 + random() % 9) |
               (random() % 2 << 63);
      default:
        return random() % 200;
    }
  };
  int mapped = 0;
  for (int round = 0; round < 3000; ++round) {
    Bytes bytes = sound;
    for (auto faults = 1 + random() % 40; faults > 0; --faults) {
      set_word(bytes, records + 8 * (random() % ((bytes.size() - records) / 8)), some_word());
    }
    // All sections are small: the words between them are few, so most faults hit one.
    if (random() % 8 == 0) {
      set_word(bytes, sizeof(GenerationHeader) + 8 * (random() % (2 * sizeof(TableRecord) / 8)),
               random() % 2 == 0 ? 64 * (random() % (bytes.size() / 64)) : some_word());
      sign(bytes);
    }
    try {
      read_all(*map(bytes, segment));
      ++mapped;
    } catch (const Damaged&) {
    }
  }
  CHECK(mapped > 2000);
}

TEST(a_cycle_of_undo_links_ends) {
  const auto segment = sample_segment();
  Bytes bytes = sample_generation(segment);
  const auto records =
      reinterpret_cast<const TableRecord*>(bytes.data() + sizeof(GenerationHeader));
  const TableRecord table = records[0];
  for (std::uint32_t row = 0; row < table.arena_rows; ++row) {
    set_word(bytes, table.off_undo + 8 * row, make_rv(10 + (row + 1) % 40, kMaxVersion));
  }
  for (std::uint64_t at = 0; at < table.index_bytes(); at += sizeof(Slot)) {
    set_word(bytes, table.off_index + at + 8, kOverflow | make_rv(11, kMaxVersion));
  }
  const auto generation = map(bytes, segment);
  CHECK(find_row(generation->tables()[0], 2, kLastVersion) == nullptr);
  CHECK(find_row(generation->tables()[0], 99, kLastVersion) == nullptr);
}

TEST(a_segment_whose_index_contradicts_itself_makes_no_generation) {
  const auto with = [](std::uint64_t key, std::uint64_t rv) {
    const Folder folder;
    SegmentWriter writer(folder.path(), "base", 7);
    writer.begin_table("h", {RowType::kF32, 4}, KeyKind::kHashed, 3, Duplicates::kRefuse);
    writer.add(counted(1, 3), rows_values(4, counted(1, 3)));
    writer.finish();
    const int fd = ::open((folder.path() + "/base").c_str(), O_RDWR | O_CLOEXEC);
    auto segment = Segment::map(fd);
    const SegmentTable table = segment->tables()[0];
    const Slot slot{key, rv};
    const auto* groups = reinterpret_cast<const Group*>(segment->data() + table.off_index);
    std::size_t used = 0;  // the first slot that is
    while (groups[used / 4].slots[used % 4].key == 0) ++used;
    const auto at = static_cast<off_t>(table.off_index + used * sizeof(Slot));
    CHECK_EQ(::pwrite(fd, &slot, sizeof slot, at), static_cast<ssize_t>(sizeof slot));
    segment = Segment::map(fd);
    ::close(fd);
    const Capacity capacities[] = {{4, 3}};
    StoreWriter::create(segment, capacities);
  };
  CHECK_THROWS(Damaged, "index of table 'h': slot", with(1, make_rv(3, kFirstVersion)));
  CHECK_THROWS(Damaged, "index of table 'h': slot", with(1, make_rv(0, 2)));
  CHECK_THROWS(Damaged, "index of table 'h': slot", with(1, make_rv(0, 1) | kTombstone));
  CHECK_THROWS(Damaged, "index of table 'h': slot", with(kDeadKey, make_rv(0, 1)));
  CHECK_THROWS(Damaged, "index of table 'h': it has 2 keys for 3 rows", with(0, 0));
}

int main() { return run_tests(); }
