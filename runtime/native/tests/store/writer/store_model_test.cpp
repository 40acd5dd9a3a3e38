// Random changes, reclaims, restores and growth against a plain map for each retained version.
#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "anabranch/store/errors.h"
#include "check.h"
#include "store/writer/stores.h"

using namespace anabranch::store;
using namespace anabranch::testing;

namespace {

constexpr std::size_t kTables = 3;
constexpr std::uint64_t kMostTags = 600;  // what f16 holds exactly, three numbers a row

const std::vector<TableSpec> kSpecs = {
    {.name = "f32", .base = {0, 3, 4, 5, ~std::uint64_t{1}}},
    {.name = "dense", .keys = KeyKind::kDenseId, .base = counted(0, 70)},
    {.name = "f16", .format = {RowType::kF16, 3}}};

using Rows = std::map<std::uint64_t, std::uint64_t>;  // key -> tag
using Tables = std::array<Rows, kTables>;

class Model {
 public:
  explicit Model(std::uint64_t seed) : random_(seed), segment_(segment_of(kSpecs)) {
    Tables base;
    for (std::size_t t = 0; t < kTables; ++t) {
      const auto& keys = kSpecs[t].base;
      for (std::size_t i = 0; i < keys.size(); ++i) base[t][keys[i]] = i + 1;
    }
    versions_[5] = base;
    writer_ = StoreWriter::create(segment_, some_room(), 5);
    reader_ = Generation::map(writer_->fd(), segment_);
  }

  void step() {
    const auto which = below(100);
    if (which < 60) {
      change();
    } else if (which < 65) {
      drop();
    } else if (which < 85) {
      reclaim(first() + below(last() - first() + 1));
    } else if (which < 93) {
      restore();
    } else {
      grow();
    }
    check();
  }

  std::uint64_t refused() const { return refused_; }

 private:
  std::uint32_t below(std::uint64_t n) { return static_cast<std::uint32_t>(random_() % n); }
  std::uint32_t first() const { return versions_.begin()->first; }
  std::uint32_t last() const { return versions_.rbegin()->first; }

  std::vector<Capacity> some_room() {
    return {
        {100 + below(100), 40 + below(40)}, {90 + below(90), 0}, {60 + below(60), 30 + below(40)}};
  }
  std::uint64_t some_key(std::size_t table) {
    if (table == 1) return below(70);
    const std::uint64_t key = below(50);
    return key < 40 ? key : ~std::uint64_t{0} - (key - 40);
  }

  // Does something random to some tables, and the same to `rows`.
  void fill(Change& change, Tables& rows) {
    ChangeCounts expected;
    for (std::size_t t = 0; t < kTables; ++t) {
      std::map<std::uint64_t, bool> touched;  // key -> whether it was there before
      for (auto calls = below(4); calls > 0; --calls) {
        std::vector<std::uint64_t> keys(below(12));
        for (std::uint64_t& key : keys) key = some_key(t);
        const bool erases = t != 1 && below(3) == 0;
        std::vector<std::uint64_t> tags(keys.size());
        for (std::uint64_t& tag : tags) tag = 1 + below(kMostTags);
        if (erases) {
          change.erase(t, keys);
        } else {
          upsert(change, t, kSpecs[t].format.dim, keys, tags);
        }
        for (std::size_t i = 0; i < keys.size(); ++i) {
          const std::uint64_t key = keys[i];
          const bool there = rows[t].contains(key);
          if (touched.contains(key)) {
            ++expected.duplicates;
          } else if (erases && !there) {
            ++expected.absent;
            continue;
          } else {
            touched[key] = there;
          }
          if (erases) {
            rows[t].erase(key);
          } else {
            rows[t][key] = tags[i];
          }
        }
      }
      for (const auto& [key, was_there] : touched) {
        const bool is_there = rows[t].contains(key);
        expected.inserted += is_there && !was_there;
        expected.updated += is_there && was_there;
        expected.deleted += !is_there && was_there;
        expected.absent += !is_there && !was_there;
      }
    }
    const ChangeCounts counts = change.counts();
    CHECK_EQ(counts.inserted, expected.inserted);
    CHECK_EQ(counts.updated, expected.updated);
    CHECK_EQ(counts.deleted, expected.deleted);
    CHECK_EQ(counts.absent, expected.absent);
    CHECK_EQ(counts.duplicates, expected.duplicates);
  }

  void change() {
    Tables rows = versions_.rbegin()->second;
    try {
      Change change = writer_->begin();
      fill(change, rows);
      CHECK_EQ(change.version(), last() + 1);
      change.apply();
    } catch (const StoreFull&) {
      ++refused_;
      return;
    }
    versions_[last() + 1] = rows;
    CHECK_EQ(writer_->version(), last());
  }

  void drop() {
    Tables rows = versions_.rbegin()->second;
    try {
      Change change = writer_->begin();
      fill(change, rows);
    } catch (const StoreFull&) {
      ++refused_;
    }
  }

  void reclaim(std::uint32_t floor) {
    writer_->reclaim(floor);
    versions_.erase(versions_.begin(), versions_.find(floor));
  }

  void restore() {
    const std::uint32_t version = first() + below(last() - first() + 1);
    try {
      writer_->restore(version).apply();
    } catch (const StoreFull&) {
      ++refused_;
      return;
    }
    versions_[last() + 1] = versions_.at(version);
  }

  void grow() {
    try {
      auto growth = writer_->grow(some_room());
      while (!growth->step(1 + below(30))) {
        if (below(2) == 0) change();
        if (below(3) == 0) reclaim(first() + below(last() - first() + 1));
        if (below(40) == 0) return;  // given up
      }
      if (below(2) == 0) change();
      auto successor = growth->finish();
      CHECK_THROWS(std::logic_error, "took over", writer_->begin());
      writer_ = std::move(successor);
    } catch (const StoreFull&) {
      ++refused_;
      return;
    }
    reader_ = Generation::map(writer_->fd(), segment_);
    versions_.erase(versions_.begin(), std::prev(versions_.end()));
  }

  void check() {
    for (const auto& [version, tables] : versions_) {
      for (std::size_t t = 0; t < kTables; ++t) check_table(t, version, tables[t]);
    }
    if (first() == last()) check_rows();
  }

  void check_table(std::size_t t, std::uint32_t version, const Rows& rows) {
    const TableView& view = reader_->tables()[t];
    for (std::uint64_t k = 0; k < 75; ++k) {
      const std::uint64_t key = k < 70 ? k : ~std::uint64_t{0} - (k - 70);
      const auto row = rows.find(key);
      CHECK_EQ(tag_at(view, key, version), row == rows.end() ? 0 : row->second);
    }
    if (version == last()) CHECK_EQ(writer_->stats(t).live_keys, rows.size());
  }

  // With one version retained, and its tombstones reclaimed, the rows in use are those of the keys.
  void check_rows() {
    writer_->reclaim(last());
    for (std::size_t t = 0; t < kTables; ++t) {
      const TableView& view = reader_->tables()[t];
      std::set<std::uint32_t> rows;
      for (const auto& [key, tag] : versions_.rbegin()->second[t]) {
        const std::uint32_t row = row_of(find_rv(view, key, last()));
        if (row >= view.base_rows) CHECK(rows.insert(row).second);
      }
      CHECK_EQ(writer_->stats(t).arena_used, rows.size());
      CHECK_EQ(writer_->stats(t).retired_rows, 0u);
    }
  }

  std::mt19937_64 random_;
  std::shared_ptr<const Segment> segment_;
  std::unique_ptr<StoreWriter> writer_;
  std::shared_ptr<const Generation> reader_;
  std::map<std::uint32_t, Tables> versions_;
  std::uint64_t refused_ = 0;
};

}  // namespace

TEST(every_retained_version_equals_a_plain_map) {
  std::uint64_t refused = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const int before = failures;
    Model model(seed);
    for (int i = 0; i < 300; ++i) model.step();
    refused += model.refused();
    if (failures != before) std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  }
  CHECK(refused > 100);  // the limits were met too
}

int main() { return run_tests(); }
