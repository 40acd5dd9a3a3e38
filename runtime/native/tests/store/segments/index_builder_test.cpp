// Index building: seeds that fail, sizes that were announced too large, keys that come again.
#include "store/segments/index_builder.h"

#include <numeric>
#include <random>
#include <unordered_map>
#include <vector>

#include "anabranch/store/errors.h"
#include "check.h"

using namespace anabranch::store;

namespace {

constexpr std::uint64_t kBadSeed = 0x1234;

// Keys that all have home group 0 of an index for `count` keys under the seed.
std::vector<std::uint64_t> crowd(std::size_t count, std::uint64_t seed) {
  std::vector<std::uint64_t> keys;
  for (std::uint64_t key = 1; keys.size() < count; ++key) {
    if (home_group(key, seed, groups_for(count)) == 0) keys.push_back(key);
  }
  return keys;
}

std::vector<std::uint32_t> added(IndexBuilder& index, std::span<const std::uint64_t> keys) {
  std::vector<std::uint32_t> rows(keys.size());
  index.add(keys, rows);
  return rows;
}

std::vector<std::uint32_t> counted(std::size_t count) {
  std::vector<std::uint32_t> rows(count);
  std::iota(rows.begin(), rows.end(), 0u);
  return rows;
}

}  // namespace

TEST(keys_that_crowd_under_one_seed_get_another) {
  const auto keys = crowd(300, kBadSeed);
  std::uint64_t seed = kBadSeed;
  IndexBuilder index(keys.size(), [&] { return seed++; });

  CHECK(added(index, keys) == counted(keys.size()));

  index.finish();
  CHECK(index.seed() != kBadSeed);
  CHECK(std::vector(index.keys().begin(), index.keys().end()) == keys);
  CHECK(added(index, keys) == counted(keys.size()));
}

TEST(keys_that_crowd_under_every_seed_are_refused) {
  const auto keys = crowd(300, kBadSeed);
  int seeds = 0;
  IndexBuilder index(keys.size(), [&] {
    ++seeds;
    return kBadSeed;
  });
  CHECK_THROWS(StoreFull, "under each of 8 seeds", added(index, keys));
  CHECK_EQ(seeds, 1 + IndexBuilder::kMostSeeds);
}

TEST(as_many_keys_as_the_reach_holds_may_share_a_home) {
  const std::size_t most = kMaxProbeGroups * kSlotsPerGroup;
  const auto keys = crowd(most + 1, kBadSeed);
  int seeds = 0;
  IndexBuilder index(keys.size(), [&] {
    ++seeds;
    return kBadSeed;
  });
  CHECK(added(index, std::span(keys).first(most)) == counted(most));
  CHECK_EQ(seeds, 1);
  CHECK_THROWS(StoreFull, "seeds", added(index, std::span(keys).subspan(most)));
}

TEST(the_index_fits_the_keys_that_came) {
  std::mt19937_64 random(1);
  std::vector<std::uint64_t> keys(5000);
  for (std::uint64_t& key : keys) key = random();
  IndexBuilder index(1000000);
  added(index, keys);
  index.finish();
  CHECK_EQ(index.group_count(), groups_for(keys.size()));
  CHECK_EQ(index.groups().size(), groups_for(keys.size()) + 1);
  CHECK(added(index, keys) == counted(keys.size()));
}

TEST(rows_are_numbered_as_their_keys_come_first) {
  std::mt19937_64 random(2);
  std::unordered_map<std::uint64_t, std::uint32_t> expected;
  std::vector<std::uint64_t> keys(100000);
  std::vector<std::uint32_t> rows;
  for (std::uint64_t& key : keys) {
    key = random() % 20000 - 10000;  // 0 and 2^64-1 among them
    rows.push_back(
        expected.emplace(key, static_cast<std::uint32_t>(expected.size())).first->second);
  }
  IndexBuilder index(keys.size());
  CHECK(added(index, keys) == rows);
  index.finish();
  CHECK_EQ(index.keys().size(), expected.size());
  for (std::size_t row = 0; row < index.keys().size(); ++row) {
    CHECK_EQ(expected.at(index.keys()[row]), row);
  }
}

TEST(seeds_differ) { CHECK(IndexBuilder::random_seed() != IndexBuilder::random_seed()); }

int main() { return anabranch::testing::run_tests(); }
