// What a change does and what readers of each version see.
#include "anabranch/store/errors.h"
#include "check.h"
#include "store/writer/stores.h"

using namespace anabranch::store;
using namespace anabranch::testing;

TEST(a_fresh_store_has_the_rows_of_its_base) {
  const auto segment = segment_of({{.name = "h", .base = {0, 5, 9, ~std::uint64_t{0}}},
                                   {.name = "d", .keys = KeyKind::kDenseId, .base = {0, 1, 2}}});
  const Capacity capacities[] = {{10, 4}, {10, 0}};
  const auto writer = StoreWriter::create(segment, capacities, 3);
  const auto reader = Generation::map(writer->fd(), segment);
  CHECK_EQ(writer->version(), 3u);
  const TableView& hashed = reader->tables()[0];
  CHECK_EQ(tag_at(hashed, 0, 3), 1u);
  CHECK_EQ(tag_at(hashed, 5, 3), 2u);
  CHECK_EQ(tag_at(hashed, 9, 3), 3u);
  CHECK_EQ(tag_at(hashed, ~std::uint64_t{0}, 3), 4u);
  CHECK_EQ(tag_at(hashed, 6, 3), 0u);
  CHECK_EQ(tag_at(reader->tables()[1], 2, 3), 3u);
  CHECK_EQ(tag_at(reader->tables()[1], 3, 3), 0u);
  CHECK_EQ(writer->stats(0).live_keys, 4u);
  CHECK_EQ(writer->stats(1).live_keys, 3u);
}

TEST(a_larger_index_than_the_base_has_is_built_from_its_keys) {
  const auto keys = counted(100, 1000);
  const auto segment = segment_of({{.name = "h", .base = keys}});
  const Capacity capacities[] = {{10, 5000}};
  const auto writer = StoreWriter::create(segment, capacities);
  const TableView& table = writer->generation()->tables()[0];
  CHECK_EQ(table.groups, groups_for(5000));
  for (std::size_t i = 0; i < keys.size(); ++i) CHECK_EQ(tag_at(table, keys[i], 1), i + 1);
}

TEST(every_retained_version_is_read_as_it_was) {
  const auto segment = segment_of(
      {{.name = "h", .base = {1, 2}}, {.name = "d", .keys = KeyKind::kDenseId, .base = {0, 1}}});
  const Capacity capacities[] = {{10, 10}, {10, 0}};
  const auto writer = StoreWriter::create(segment, capacities);
  {
    Change change = writer->begin();
    upsert(change, 0, 4, {1, 3, 0}, {11, 12, 13});
    upsert(change, 1, 4, {1}, {14});
    change.erase(0, std::vector<std::uint64_t>{2});
    const ChangeCounts counts = change.counts();
    CHECK_EQ(counts.inserted, 2u);
    CHECK_EQ(counts.updated, 2u);
    CHECK_EQ(counts.deleted, 1u);
    change.apply();
    CHECK_EQ(change.counts().inserted, 2u);
  }
  const auto reader = Generation::map(writer->fd(), segment);
  const TableView& hashed = reader->tables()[0];
  const std::uint64_t keys[] = {0, 1, 2, 3};
  const std::uint64_t before[] = {0, 1, 2, 0};
  const std::uint64_t after[] = {13, 11, 0, 12};
  for (std::size_t i = 0; i < std::size(keys); ++i) {
    CHECK_EQ(tag_at(hashed, keys[i], 1), before[i]);
    CHECK_EQ(tag_at(hashed, keys[i], 2), after[i]);
  }
  CHECK_EQ(tag_at(reader->tables()[1], 1, 1), 2u);
  CHECK_EQ(tag_at(reader->tables()[1], 1, 2), 14u);
  CHECK_EQ(tag_at(reader->tables()[1], 0, 2), 1u);
}

TEST(the_last_of_several_changes_to_a_key_wins) {
  const auto segment = segment_of({{.name = "h", .base = {1, 2, 3}}});
  const Capacity capacities[] = {{10, 10}};
  const auto writer = StoreWriter::create(segment, capacities);
  Change change = writer->begin();
  upsert(change, 0, 4, {7, 7, 1}, {21, 22, 23});  // twice in one call
  change.erase(0, std::vector<std::uint64_t>{1, 8, 2});
  upsert(change, 0, 4, {2, 9}, {24, 25});          // deleted, then there again
  change.erase(0, std::vector<std::uint64_t>{9});  // brought in, then gone again
  const ChangeCounts counts = change.counts();
  CHECK_EQ(counts.inserted, 1u);    // 7
  CHECK_EQ(counts.updated, 1u);     // 2
  CHECK_EQ(counts.deleted, 1u);     // 1
  CHECK_EQ(counts.absent, 2u);      // 8, 9
  CHECK_EQ(counts.duplicates, 4u);  // 7, 1, 2, 9
  change.apply();
  const TableView& table = writer->generation()->tables()[0];
  const std::uint64_t keys[] = {1, 2, 3, 7, 8, 9};
  const std::uint64_t tags[] = {0, 24, 3, 22, 0, 0};
  for (std::size_t i = 0; i < std::size(keys); ++i) CHECK_EQ(tag_at(table, keys[i], 2), tags[i]);
  CHECK_EQ(writer->stats(0).live_keys, 3u);
  CHECK_EQ(writer->stats(0).arena_used, 3u);
}

TEST(other_row_types_are_encoded_and_encoded_rows_are_taken_as_they_are) {
  const RowFormat format{RowType::kF16, 3};
  const auto segment = segment_of({{.name = "h", .format = format, .base = {1}}});
  const Capacity capacities[] = {{10, 10}};
  const auto writer = StoreWriter::create(segment, capacities);
  std::vector<std::byte> encoded(format.stride());
  encode_rows(format, row_values(3, 6), encoded);
  Change change = writer->begin();
  upsert(change, 0, 3, {1}, {5});
  change.upsert_encoded(0, std::vector<std::uint64_t>{2}, encoded);
  change.apply();
  const TableView& table = writer->generation()->tables()[0];
  CHECK_EQ(tag_at(table, 1, 2), 5u);
  CHECK_EQ(tag_at(table, 2, 2), 6u);
}

TEST(what_a_table_cannot_take_is_refused) {
  const auto segment = segment_of({{.name = "h"},
                                   {.name = "d", .keys = KeyKind::kDenseId, .base = {0, 1}},
                                   {.name = "q", .format = {RowType::kInt8, 2}}});
  const Capacity capacities[] = {{10, 10}, {10, 0}, {4000, 4000}};
  const auto writer = StoreWriter::create(segment, capacities);
  const std::vector<std::uint64_t> two = {1, 2};
  CHECK_THROWS(Refused, "table 'd': id 2 is out of range: it has 2 rows",
               Change change = writer->begin();
               upsert(change, 1, 4, {2}, {1}));
  CHECK_THROWS(Refused, "table 'd': its keys are row numbers", Change change = writer->begin();
               change.erase(1, two));
  CHECK_THROWS(Refused, "table 'h': 2 keys come with 4 numbers", Change change = writer->begin();
               change.upsert(0, two, row_values(4, 1)));
  std::vector<float> values(2 * 3000, 1.0f);
  values[2 * 2500] = 1e30f;
  CHECK_THROWS(Refused, "table 'q': row 2500", Change change = writer->begin();
               change.upsert(2, counted(1, 3000), values));
  CHECK_THROWS(std::out_of_range, "table 3 of 3", Change change = writer->begin();
               change.erase(3, two));
  CHECK_EQ(writer->stats(2).arena_used, 0u);
}

TEST(a_change_is_one_at_a_time_and_only_dropped_after_a_failure) {
  const auto writer = empty_store(2, 10);
  {
    Change change = writer->begin();
    CHECK_THROWS(std::logic_error, "a change is open", writer->begin());
    CHECK_THROWS(std::logic_error, "a change is open", writer->reclaim(1));
    CHECK_THROWS(StoreFull, "all 2 arena rows", upsert(change, 0, 4, {1, 2, 3}, {1, 2, 3}));
    CHECK_THROWS(std::logic_error, "drop it", upsert(change, 0, 4, {1}, {1}));
  }
  CHECK_EQ(apply(*writer, {1, 2}, {1, 2}), 2u);
}

TEST(a_change_that_deletes_a_key_and_brings_it_back_keeps_to_the_limit_of_keys) {
  const auto segment = segment_of({{.name = "h", .base = counted(1, 20)}});
  const Capacity capacities[] = {{40, 20}};
  const auto writer = StoreWriter::create(segment, capacities);
  {
    Change change = writer->begin();
    change.erase(0, std::vector<std::uint64_t>{1});
    upsert(change, 0, 4, {31}, {31});
    CHECK_THROWS(StoreFull, "table 'h': it has room for 20 keys", upsert(change, 0, 4, {1}, {1}));
  }
  {
    Change change = writer->begin();  // the same for a key that the change itself brought in
    change.erase(0, std::vector<std::uint64_t>{1});
    upsert(change, 0, 4, {31}, {31});
    change.erase(0, std::vector<std::uint64_t>{31});
    upsert(change, 0, 4, {32}, {32});
    CHECK_THROWS(StoreFull, "room for 20 keys", upsert(change, 0, 4, {31}, {31}));
  }
  Change change = writer->begin();  // as many as before
  change.erase(0, std::vector<std::uint64_t>{1});
  upsert(change, 0, 4, {1, 2}, {5, 6});
  change.apply();
  CHECK_EQ(writer->stats(0).live_keys, 20u);
}

TEST(apply_takes_no_memory_that_the_change_did_not_take) {
  constexpr std::uint64_t kIds = 200000;  // 7 pages of bitmap and 391 of rvs
  const auto segment = segment_of(
      {{.name = "h"}, {.name = "d", .keys = KeyKind::kDenseId, .base = counted(0, kIds)}});
  const Capacity capacities[] = {{20000, 20000}, {20000, 0}};
  const auto writer = StoreWriter::create(segment, capacities);
  Change change = writer->begin();
  const auto keys = counted(1, 10000);
  upsert(change, 0, 4, keys, keys);
  std::vector<std::uint64_t> ids;
  for (std::uint64_t id = 0; id < kIds; id += 40) ids.push_back(id);
  upsert(change, 1, 4, ids, ids);
  const StoreWriter::Bytes before = writer->bytes();
  change.apply();
  const StoreWriter::Bytes after = writer->bytes();
  CHECK_EQ(before.index, after.index);
  CHECK_EQ(before.undo, after.undo);
  CHECK_EQ(before.arena, after.arena);
  CHECK(before.undo >= 15000 * sizeof(std::uint64_t));
}

TEST(capacities_that_cannot_be_are_refused) {
  const auto segment = segment_of({{.name = "h", .base = {1, 2, 3}}});
  const auto create = [&](std::vector<Capacity> capacities, std::uint32_t version = 1) {
    StoreWriter::create(segment, capacities, version);
  };
  CHECK_THROWS(std::invalid_argument, "0 capacities for 1 tables", create({}));
  CHECK_THROWS(std::invalid_argument, "table 'h': room for 2 keys", create({{0, 2}}));
  CHECK_THROWS(std::invalid_argument, "table 'h': 3 base rows", create({{1u << 31, 3}}));
  CHECK_THROWS(std::invalid_argument, "store version 0", create({{0, 3}}, 0));
  create({{0, 3}});
}

TEST(many_small_tables_cost_little_and_untouched_rows_nothing) {
  std::vector<TableSpec> tables;
  std::vector<Capacity> capacities;
  for (int i = 0; i < 300; ++i) {
    tables.push_back({.name = "t" + std::to_string(i), .base = counted(1, 20)});
    capacities.push_back({1000, 40});
  }
  tables.push_back({.name = "big", .format = {RowType::kF32, 64}});
  capacities.push_back({4000000, 100});
  const auto writer = StoreWriter::create(segment_of(tables), capacities);
  const StoreWriter::Bytes bytes = writer->bytes();
  CHECK(bytes.index < 2u << 20);
  CHECK_EQ(bytes.arena, 0u);
  CHECK_EQ(bytes.undo, 0u);
  CHECK(writer->generation()->bytes() > 1000000000u);
  const auto reader = Generation::map(writer->fd(), segment_of(tables));
  CHECK_EQ(writer->bytes().arena, 0u);
}

TEST(rows_stay_what_they_are_while_their_arena_gets_huge_pages) {
  constexpr std::uint64_t kRows = 40000;
  const RowFormat format{RowType::kF32, 64};  // 10 MB of rows
  const auto segment = segment_of({{.name = "a", .format = format}, {.name = "b"}});
  const Capacity capacities[] = {{kRows, kRows}, {100, 100}};
  const auto writer = StoreWriter::create(segment, capacities);
  const auto reader = Generation::map(writer->fd(), segment);
  for (std::uint64_t first = 1; first <= kRows; first += 1000) {
    Change change = writer->begin();
    upsert(change, 0, 64, counted(first, 1000), counted(first, 1000));
    upsert(change, 1, 4, {first / 1000}, {first});
    change.apply();
  }
  for (std::uint64_t key = 1; key <= kRows; ++key) {
    CHECK_EQ(tag_at(reader->tables()[0], key, writer->version()), key);
  }
  for (std::uint64_t key = 0; key < kRows / 1000; ++key) {
    CHECK_EQ(tag_at(reader->tables()[1], key, writer->version()), key * 1000 + 1);
  }
  CHECK(writer->bytes().arena <= kRows * format.stride() + (4u << 20));
}

TEST(restore_gives_back_what_a_version_had) {
  const auto segment = segment_of(
      {{.name = "h", .base = {1, 2}}, {.name = "d", .keys = KeyKind::kDenseId, .base = {0, 1}}});
  const Capacity capacities[] = {{40, 3}, {10, 0}};
  const auto writer = StoreWriter::create(segment, capacities);
  apply(*writer, {3, 1}, {31, 32});  // 2
  {
    Change change = writer->begin();  // 3
    change.erase(0, std::vector<std::uint64_t>{1, 3});
    upsert(change, 0, 4, {0}, {34});
    upsert(change, 1, 4, {0}, {35});
    change.apply();
  }
  apply(*writer, {3, 2}, {36, 37}, {0});  // 4
  {
    Change change = writer->restore(2);      // 5
    CHECK_EQ(change.counts().inserted, 1u);  // 1
    CHECK_EQ(change.counts().updated, 3u);   // 2, 3, dense 0
    CHECK_EQ(change.counts().deleted, 0u);   // 0 went already
    change.apply();
  }
  const auto check = [&](std::uint32_t version) {
    const auto generation = writer->generation();
    const std::uint64_t keys[] = {0, 1, 2, 3};
    const std::uint64_t tags[] = {0, 32, 2, 31};
    for (std::size_t i = 0; i < std::size(keys); ++i) {
      CHECK_EQ(tag_at(generation->tables()[0], keys[i], version), tags[i]);
    }
    CHECK_EQ(tag_at(generation->tables()[1], 0, version), 1u);
  };
  check(2);
  check(5);
  CHECK_EQ(tag_at(writer->generation()->tables()[0], 3, 4), 36u);
  writer->reclaim(3);
  CHECK_THROWS(Refused, "version 2 is not retained: those from 3 to 5 are", writer->restore(2));
  writer->reclaim(5);
  check(5);
}

int main() { return run_tests(); }
