// What the first sketch of the store did wrong, one test for each.
#include <set>

#include "anabranch/store/errors.h"
#include "check.h"
#include "store/writer/stores.h"

using namespace anabranch::store;
using namespace anabranch::testing;

namespace {

// Groups that a miss of `key` looks at.
std::uint32_t groups_of_a_miss(const TableView& table, std::uint64_t key) {
  std::uint64_t group = home_group(key, table.seed, table.groups);
  std::uint32_t looked_at = 1;
  while ((table.index[group].slots[0].rv & kOverflow) != 0 && looked_at < kMaxProbeGroups) {
    group = (group + 1) % table.groups;
    ++looked_at;
  }
  return looked_at;
}

std::vector<std::byte> bytes_of(const Generation& generation) {
  const TableView& table = generation.tables()[0];
  const auto* begin = reinterpret_cast<const std::byte*>(table.index);
  return {begin, begin + (table.groups + 1) * sizeof(Group)};
}

}  // namespace

TEST(a_dropped_change_leaves_no_trace) {
  const auto segment = segment_of({{.name = "t", .base = counted(1, 20)}});
  const Capacity capacities[] = {{64, 40}};
  const auto writer = StoreWriter::create(segment, capacities);
  const auto before = bytes_of(*writer->generation());
  for (int i = 0; i < 10; ++i) {  // more than the arena holds, if one were kept
    Change change = writer->begin();
    upsert(change, 0, 4, counted(10, 30), counted(100, 30));
    change.erase(0, counted(1, 5));
  }
  CHECK(bytes_of(*writer->generation()) == before);
  CHECK_EQ(writer->stats(0).arena_used, 0u);
  CHECK_EQ(writer->stats(0).used_slots, 20u);
  CHECK_EQ(writer->version(), 1u);
  apply(*writer, {100}, {1});
  for (const std::uint64_t key : counted(21, 19)) {
    CHECK_EQ(tag_at(writer->generation()->tables()[0], key, 2), 0u);
  }
}

TEST(a_version_number_is_never_used_twice_for_stored_rows) {
  const auto writer = empty_store(10, 10);
  CHECK_EQ(apply(*writer, {1}, {1}), 2u);
  // Whoever applies and then never tells readers: version 3 was stored, and is spent.
  CHECK_EQ(apply(*writer, {1}, {2}), 3u);
  {
    Change dropped = writer->begin();
  }
  CHECK_EQ(apply(*writer, {2}, {3}), 4u);
  const TableView& table = writer->generation()->tables()[0];
  CHECK_EQ(tag_at(table, 1, 2), 1u);
  CHECK_EQ(tag_at(table, 2, 3), 0u);
}

TEST(a_full_index_refuses_and_ends_every_search) {
  const auto writer = empty_store(200, 38);
  const std::uint64_t slots = writer->stats(0).slots;
  CHECK_EQ(slots, 64u);
  apply(*writer, counted(1, 38), counted(1, 38));
  {
    Change change = writer->begin();
    CHECK_THROWS(StoreFull, "room for 38 keys", upsert(change, 0, 4, {100}, {1}));
  }
  // Deleted keys keep their slots until readers have moved on: with them it fills further.
  std::uint64_t next = 1000;
  bool full = false;
  for (std::uint64_t dead = 1; !full && dead < 38; ++dead) {
    apply(*writer, {}, {}, {dead});
    try {
      apply(*writer, {next++}, {1});
    } catch (const StoreFull& error) {
      full = std::string(error.what()).find("slots are in use") != std::string::npos;
    }
  }
  CHECK(full);
  CHECK_EQ(writer->stats(0).used_slots, slots * 3 / 4);
  const TableView& table = writer->generation()->tables()[0];
  for (std::uint64_t key = 5000; key < 6000; ++key) {
    CHECK(find_row(table, key, writer->version()) == nullptr);
  }
}

TEST(misses_in_a_loaded_index_end_at_once) {
  const auto writer = empty_store(30000, 30000);
  apply(*writer, counted(1, 30000), counted(1, 30000));
  const TableView& table = writer->generation()->tables()[0];
  std::uint64_t looked_at = 0;
  constexpr std::uint64_t kMisses = 10000;
  for (std::uint64_t key = 0; key < kMisses; ++key) {
    looked_at += groups_of_a_miss(table, 1000000 + key);
  }
  // One group each, and another one for those whose home overflowed; the sketch walked on to the
  // next group with an empty slot from wherever it was.
  CHECK(looked_at < kMisses * 3 / 2);
  CHECK(writer->stats(0).mean_probe < 1.3);
}

TEST(nothing_is_reclaimed_while_a_change_takes_rows) {
  const auto writer = empty_store(3, 10);
  apply(*writer, {1}, {1});
  apply(*writer, {1}, {2});
  // Two of three rows are in use, one of them superseded: the sketch freed it to go on.
  {
    Change change = writer->begin();
    CHECK_THROWS(StoreFull, "all 3 arena rows are in use", upsert(change, 0, 4, {2, 3}, {3, 4}));
  }
  const TableView& table = writer->generation()->tables()[0];
  CHECK_EQ(tag_at(table, 1, 2), 1u);
  CHECK_EQ(tag_at(table, 1, 3), 2u);
  CHECK_EQ(writer->reclaim(3), 1u);
  apply(*writer, {2, 3}, {3, 4});
  CHECK_EQ(tag_at(table, 1, 4), 2u);
}

TEST(an_arena_that_fills_in_mid_delta_publishes_nothing_of_it) {
  const auto writer = empty_store(10, 40);
  apply(*writer, counted(1, 5), counted(1, 5));
  {
    Change change = writer->begin();
    upsert(change, 0, 4, {1, 2, 20}, {11, 12, 13});
    CHECK_THROWS(StoreFull, "arena rows", upsert(change, 0, 4, counted(21, 5), counted(21, 5)));
  }
  apply(*writer, {3}, {33});
  const TableView& table = writer->generation()->tables()[0];
  CHECK_EQ(tag_at(table, 1, 3), 1u);
  CHECK_EQ(tag_at(table, 2, 3), 2u);
  CHECK_EQ(tag_at(table, 3, 3), 33u);
  CHECK_EQ(tag_at(table, 20, 3), 0u);
  CHECK_EQ(tag_at(table, 21, 3), 0u);
}

TEST(a_key_that_comes_back_before_reclaim_frees_its_tombstone_once) {
  const auto writer = empty_store(10, 10);
  apply(*writer, {1, 2}, {1, 2});
  apply(*writer, {}, {}, {1});
  const std::uint32_t back = apply(*writer, {1}, {3});
  CHECK_EQ(writer->stats(0).retired_rows, 2u);
  CHECK_EQ(writer->reclaim(back), 2u);  // row 1 and its tombstone
  CHECK_EQ(writer->reclaim(back), 0u);
  CHECK_EQ(writer->stats(0).arena_used, 2u);
  // Every free row is handed out once: eight new keys have rows of their own, and the old ones too.
  apply(*writer, counted(10, 8), counted(10, 8));
  const TableView& table = writer->generation()->tables()[0];
  std::set<const std::byte*> rows;
  for (const std::uint64_t key : {1, 2, 10, 11, 12, 13, 14, 15, 16, 17}) {
    const std::uint64_t expected = key == 1 ? 3 : key;
    CHECK_EQ(tag_at(table, key, writer->version()), expected);
    rows.insert(find_row(table, key, writer->version()));
  }
  CHECK_EQ(rows.size(), 10u);
}

TEST(the_churn_of_ids_does_not_fill_the_index) {
  const auto writer = empty_store(16, 38);
  CHECK_EQ(writer->stats(0).slots, 64u);
  for (std::uint64_t key = 1; key <= 100000; ++key) {
    apply(*writer, {key}, {key % 1000 + 1});
    apply(*writer, {}, {}, {key});
    writer->reclaim(writer->version());
  }
  CHECK_EQ(writer->stats(0).live_keys, 0u);
  CHECK(writer->stats(0).arena_used == 0);
}

TEST(a_dead_slot_waits_for_readers_that_may_know_its_key) {
  const auto writer = empty_store(100, 1);  // one group
  CHECK_EQ(writer->stats(0).slots, 4u);
  apply(*writer, {1}, {1});
  apply(*writer, {}, {}, {1});
  apply(*writer, {2}, {2});
  apply(*writer, {}, {}, {2});
  apply(*writer, {3}, {3});
  const std::uint32_t gone = apply(*writer, {}, {}, {3});
  // However often: the floor has not passed the version after their death.
  for (int i = 0; i < 3; ++i) writer->reclaim(gone);
  CHECK_EQ(writer->stats(0).used_slots, 3u);
  CHECK_THROWS(StoreFull, "slots are in use", apply(*writer, {4}, {4}));
  const std::uint32_t next = apply(*writer, {}, {});
  writer->reclaim(next);
  CHECK_EQ(writer->stats(0).used_slots, 0u);
  apply(*writer, {4}, {4});
  CHECK_EQ(tag_at(writer->generation()->tables()[0], 4, writer->version()), 4u);
}

TEST(base_rows_are_never_handed_out) {
  const auto segment = segment_of({{.name = "t", .base = counted(1, 8)}});
  const Capacity capacities[] = {{8, 20}};
  const auto writer = StoreWriter::create(segment, capacities);
  apply(*writer, counted(1, 4), counted(11, 4));
  apply(*writer, {}, {}, counted(5, 4));
  CHECK_EQ(writer->reclaim(writer->version()), 4u);  // the tombstones; no row of the base
  CHECK_EQ(writer->stats(0).arena_used, 4u);
  CHECK_THROWS(StoreFull, "all 8 arena rows", apply(*writer, counted(20, 5), counted(20, 5)));
}

int main() { return run_tests(); }
