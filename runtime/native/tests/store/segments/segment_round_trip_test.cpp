// What was written is read again: all row types, widths, keys and numbers of tables.
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <random>

#include "anabranch/store/errors.h"
#include "anabranch/store/segment.h"
#include "check.h"
#include "samples.h"

using namespace anabranch::store;
using anabranch::testing::Folder;
using anabranch::testing::map_file;
using anabranch::testing::row_number;
using anabranch::testing::row_of_key;

namespace {

constexpr RowType kTypes[] = {RowType::kF32, RowType::kF16, RowType::kBf16, RowType::kInt8};
constexpr std::uint64_t kHugePage = std::uint64_t{2} << 20;

std::vector<std::uint64_t> random_keys(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::uint64_t> keys(count);
  for (std::uint64_t& key : keys) key = random();
  return keys;
}

std::vector<float> random_values(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// The values as rows of this format hold them.
std::vector<float> as_held(RowFormat format, std::span<const float> values) {
  std::vector<std::byte> row(format.stride());
  std::vector<float> held(format.dim);
  encode_rows(format, values, row);
  decode_row(format, row.data(), held.data());
  return held;
}

}  // namespace

TEST(rows_of_every_type_and_width_come_back) {
  const Folder folder;
  std::vector<RowFormat> formats;
  for (const RowType type : kTypes) {
    for (std::uint32_t dim = 1; dim <= 1024; dim = dim < 70 ? dim + 1 : dim * 2 - 3) {
      formats.push_back({type, dim});
    }
    formats.push_back({type, 1024});
  }
  constexpr std::size_t kRows = 7;
  SegmentWriter writer(folder.path(), "a.seg", 42);
  for (std::size_t t = 0; t < formats.size(); ++t) {
    writer.begin_table(std::to_string(t), formats[t], KeyKind::kHashed, kRows, Duplicates::kRefuse);
    writer.add(random_keys(kRows, t), random_values(kRows * formats[t].dim, t));
  }
  const std::uint64_t bytes = writer.finish();

  const auto segment = map_file(folder.path("a.seg"));
  segment->verify();
  CHECK_EQ(segment->bytes(), bytes);
  CHECK_EQ(segment->model_version(), 42u);
  CHECK_EQ(segment->format(), 1u);
  CHECK_EQ(segment->memory_fd(), -1);
  CHECK_EQ(segment->tables().size(), formats.size());
  for (std::size_t t = 0; t < formats.size(); ++t) {
    const SegmentTable& table = segment->tables()[t];
    CHECK_EQ(table.name, std::to_string(t));
    CHECK(table.format == formats[t]);
    CHECK_EQ(table.rows, kRows);
    const auto keys = random_keys(kRows, t);
    const auto values = random_values(kRows * formats[t].dim, t);
    for (std::size_t i = 0; i < kRows; ++i) {
      const std::size_t dim = formats[t].dim;
      CHECK(row_of_key(*segment, t, keys[i]) ==
            as_held(formats[t], std::span(values).subspan(i * dim, dim)));
      std::uint64_t key;
      std::memcpy(&key, segment->data() + table.off_keys + 8 * i, sizeof key);
      CHECK_EQ(key, keys[i]);
    }
    CHECK(row_of_key(*segment, t, 12345).empty());
  }
}

TEST(every_key_can_be_a_key) {
  const Folder folder;
  const std::vector<std::uint64_t> keys = {0,
                                           ~std::uint64_t{0},
                                           1,
                                           ~std::uint64_t{1},
                                           static_cast<std::uint64_t>(-5),
                                           std::uint64_t{1} << 63,
                                           (std::uint64_t{1} << 63) - 1,
                                           2};
  const std::vector<float> values = {10, 11, 12, 13, 14, 15, 16, 17};
  SegmentWriter writer(folder.path(), "a.seg", 1);
  writer.begin_table("with", {RowType::kF32, 1}, KeyKind::kHashed, 8, Duplicates::kRefuse);
  writer.add(keys, values);
  writer.begin_table("without", {RowType::kF32, 1}, KeyKind::kHashed, 1, Duplicates::kRefuse);
  writer.add(std::vector<std::uint64_t>{7}, std::vector<float>{1});
  writer.finish();

  const auto segment = map_file(folder.path("a.seg"));
  segment->verify();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    CHECK(row_of_key(*segment, 0, keys[i]) == std::vector{values[i]});
    CHECK(row_of_key(*segment, 1, keys[i]).empty());
  }
}

TEST(many_rows_in_pieces_of_odd_sizes) {
  const Folder folder;
  constexpr std::size_t kRows = 300000;
  constexpr std::size_t kDim = 5;
  const auto keys = random_keys(kRows, 1);
  const auto values = random_values(kRows * kDim, 2);
  SegmentWriter writer(folder.path(), "a.seg", 1);
  writer.begin_table("x", {RowType::kF32, kDim}, KeyKind::kHashed, kRows + 1, Duplicates::kRefuse);
  for (std::size_t at = 0, piece = 1; at < kRows; at += piece, piece = piece * 3 + 1) {
    piece = std::min(piece, kRows - at);
    writer.add(std::span(keys).subspan(at, piece),
               std::span(values).subspan(at * kDim, piece * kDim));
  }
  writer.finish();

  const auto segment = map_file(folder.path("a.seg"), Residency::kPopulated);
  std::uint64_t done = 0;
  segment->verify([&](std::uint64_t bytes) {
    CHECK(bytes > done);
    done = bytes;
  });
  CHECK(done > segment->bytes() * 99 / 100);
  const SegmentTable& table = segment->tables()[0];
  CHECK_EQ(table.rows, kRows);
  CHECK_EQ(table.groups, groups_for(kRows));
  CHECK_EQ(table.off_rows % kHugePage, 0u);
  CHECK_EQ(table.off_keys % kHugePage, 0u);
  CHECK_EQ(table.off_index % kHugePage, 0u);
  for (std::size_t i = 0; i < kRows; ++i) {
    CHECK(row_number(*segment, 0, keys[i]) == std::optional(static_cast<std::uint32_t>(i)));
  }
  for (std::size_t i = 0; i < kRows; i += 97) {
    CHECK(row_of_key(*segment, 0, keys[i]) ==
          std::vector(values.begin() + i * kDim, values.begin() + (i + 1) * kDim));
  }
  const auto probes = segment->probes(0);
  CHECK(probes.mean > 1 && probes.mean < 1.2);
  CHECK(probes.most > 1 && probes.most <= kMaxProbeGroups);
}

TEST(a_copy_holds_the_same_and_maps_again) {
  const Folder folder;
  constexpr std::size_t kRows = 40000;
  const auto keys = random_keys(kRows, 3);
  const auto values = random_values(kRows * 32, 4);
  SegmentWriter writer(folder.path(), "a.seg", 9);
  writer.begin_table("x", {RowType::kF32, 32}, KeyKind::kHashed, kRows, Duplicates::kRefuse);
  writer.add(keys, values);
  writer.finish();
  const int fd = ::open(folder.path("a.seg").c_str(), O_RDONLY);
  const auto copy = Segment::copy(fd);
  ::close(fd);
  std::filesystem::remove(folder.path("a.seg"));

  copy->verify();
  CHECK(copy->memory_fd() >= 0);
  CHECK(copy->huge_page_ratio() >= 0 && copy->huge_page_ratio() <= 1);
  CHECK_EQ(::pwrite(copy->memory_fd(), "x", 1, 0), -1);
  CHECK_EQ(::ftruncate(copy->memory_fd(), 0), -1);
  const auto again = Segment::map(copy->memory_fd());
  again->verify();
  CHECK_EQ(again->model_version(), 9u);
  CHECK(row_of_key(*again, 0, keys[77]) ==
        std::vector(values.begin() + 77 * 32, values.begin() + 78 * 32));
}

TEST(a_segment_may_be_locked_in_memory) {
  const Folder folder;
  SegmentWriter writer(folder.path(), "a.seg", 1);
  writer.begin_table("x", {RowType::kF32, 1}, KeyKind::kDenseId, 2, Duplicates::kRefuse);
  writer.add({}, std::vector<float>{3, 4});
  writer.finish();
  const auto locked_kib = [] {
    std::ifstream status("/proc/self/status");
    std::string line;
    std::uint64_t kib = 0;
    while (std::getline(status, line)) std::sscanf(line.c_str(), "VmLck: %" SCNu64, &kib);
    return kib;
  };
  const std::uint64_t before = locked_kib();

  const auto segment = map_file(folder.path("a.seg"), Residency::kLocked);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which leave mlock out
  CHECK(locked_kib() >= before + segment->bytes() / 1024);
#else
  CHECK(locked_kib() >= before);
#endif
  CHECK(row_of_key(*segment, 0, 1) == std::vector<float>{4});
}

TEST(dense_ids_need_no_index) {
  const Folder folder;
  const auto values = random_values(1000 * 3, 5);
  SegmentWriter writer(folder.path(), "a.seg", 1);
  writer.begin_table("x", {RowType::kF32, 3}, KeyKind::kDenseId, 1000, Duplicates::kRefuse);
  writer.add({}, std::span(values).first(900));
  writer.add({}, std::span(values).subspan(900));
  writer.finish();

  const auto segment = map_file(folder.path("a.seg"));
  segment->verify();
  const SegmentTable& table = segment->tables()[0];
  CHECK(table.keys == KeyKind::kDenseId);
  CHECK_EQ(table.groups, 0u);
  CHECK_EQ(table.rows, 1000u);
  CHECK(row_of_key(*segment, 0, 999) == std::vector(values.end() - 3, values.end()));
  CHECK_EQ(segment->probes(0).most, 1u);
}

TEST(a_table_and_a_segment_may_be_empty) {
  const Folder folder;
  SegmentWriter(folder.path(), "none.seg", 1).finish();
  SegmentWriter writer(folder.path(), "empty.seg", 1);
  writer.begin_table("hashed", {RowType::kF16, 8}, KeyKind::kHashed, 0, Duplicates::kRefuse);
  writer.begin_table("dense", {RowType::kF16, 8}, KeyKind::kDenseId, 0, Duplicates::kRefuse);
  writer.begin_table("announced", {RowType::kF16, 8}, KeyKind::kHashed, 500, Duplicates::kRefuse);
  writer.finish();

  map_file(folder.path("none.seg"))->verify();
  const auto segment = map_file(folder.path("empty.seg"), Residency::kPopulated);
  segment->verify();
  CHECK_EQ(segment->tables().size(), 3u);
  CHECK_EQ(segment->tables()[2].groups, groups_for(0));
  CHECK(row_of_key(*segment, 0, 0).empty());
  CHECK(row_of_key(*segment, 0, 5).empty());
  CHECK_EQ(segment->probes(0).most, 0u);
}

TEST(many_small_tables_make_a_small_file) {
  const Folder folder;
  constexpr std::size_t kTables = 300;
  constexpr std::size_t kRows = 1000;
  constexpr RowFormat kFormat{RowType::kF32, 32};
  SegmentWriter writer(folder.path(), "a.seg", 1);
  for (std::size_t t = 0; t < kTables; ++t) {
    writer.begin_table("t" + std::to_string(t), kFormat, KeyKind::kHashed, kRows,
                       Duplicates::kRefuse);
    writer.add(random_keys(kRows, t), random_values(kRows * 32, t));
  }
  const std::uint64_t bytes = writer.finish();

  const std::uint64_t payload = kTables * kRows * (kFormat.stride() + 8 + 27);
  CHECK(bytes < payload + payload / 50);
  const auto segment = map_file(folder.path("a.seg"));
  segment->verify();
  const auto values = random_values(kRows * 32, 299);
  CHECK(row_of_key(*segment, 299, random_keys(kRows, 299)[999]) ==
        std::vector(values.end() - 32, values.end()));
}

int main() { return anabranch::testing::run_tests(); }
