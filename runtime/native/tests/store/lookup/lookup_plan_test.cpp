// What a plan and a run refuse, and what they do at the edges of their arguments.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "anabranch/store/errors.h"
#include "anabranch/store/lookup.h"
#include "check.h"
#include "memory_table.h"

using namespace anabranch::store;
using anabranch::testing::MemoryGeneration;
using anabranch::testing::MemoryTable;

namespace {

constexpr std::uint32_t kDim = 3;

MemoryTable::Row filled(float value) { return MemoryTable::Row(kDim, value); }

// Key k has the row k, k, k; keys 1..9. Dense: ids 0..9.
MemoryTable hashed_table() {
  MemoryTable table = MemoryTable::hashed({RowType::kF32, kDim}, 40, 8);
  for (std::uint64_t key = 1; key < 10; ++key) {
    table.put(key, kFirstVersion, filled(static_cast<float>(key)));
  }
  return table;
}

MemoryTable dense_table() {
  MemoryTable table = MemoryTable::dense({RowType::kF32, kDim}, 10, 40);
  for (std::uint32_t id = 0; id < 10; ++id) table.set_base(id, filled(static_cast<float>(id)));
  return table;
}

std::shared_ptr<const Generation> generation_of(const MemoryTable& table) {
  return std::make_shared<MemoryGeneration>(std::vector<TableView>{table.view()});
}

LookupSpec spec_of(Combiner combiner, BagForm bag, std::uint32_t max_length) {
  LookupSpec spec;
  spec.feature = "item";
  spec.table = 0;
  spec.combiner = combiner;
  spec.bag = bag;
  spec.max_length = max_length;
  return spec;
}

// One lookup in one buffer, run with every instruction set.
class Single {
 public:
  Single(const MemoryTable& table, LookupSpec spec) : spec_(std::move(spec)) {
    width_ = spec_.combiner == Combiner::kNone ? kDim * spec_.max_length : kDim;
    generation_ = generation_of(table);
  }

  // The first number of each row of `kDim` that was written.
  std::vector<float> run(const FeatureInput& input, std::int64_t rows,
                         std::uint32_t version = kFirstVersion) {
    std::vector<float> last;
    for (const std::string_view isa : LookupPlan::instruction_sets()) {
      const LookupPlan plan(generation_, {spec_}, {{OutputType::kF32, Side::kRow, width_}}, isa);
      std::vector<float> out(static_cast<std::size_t>(rows) * width_, -1.0f);
      LookupArguments arguments;
      arguments.features.push_back(input);
      arguments.outputs.push_back({out.data(), static_cast<std::int64_t>(width_)});
      plan.run(arguments, {version, rows});
      last.clear();
      for (std::size_t i = 0; i < out.size(); i += kDim) last.push_back(out[i]);
    }
    return last;
  }

 private:
  LookupSpec spec_;
  std::shared_ptr<const Generation> generation_;
  std::size_t width_;
};

using Ids = std::vector<std::int64_t>;

FeatureInput fixed(const Ids& ids, std::int64_t stride = 1) {
  return {ids.data(), stride, 0, nullptr, 0, nullptr};
}

FeatureInput bagged(const Ids& ids, const Ids& bag, const float* weights = nullptr) {
  return {ids.data(),
          0,
          static_cast<std::int64_t>(ids.size()),
          bag.data(),
          static_cast<std::int64_t>(bag.size()),
          weights};
}

// Plans of two lookups in one buffer of 8 columns.
void make_plan(const MemoryTable& table, const LookupSpec& spec, Side buffer_side = Side::kRow) {
  LookupSpec other = spec_of(Combiner::kSum, BagForm::kFixed, 1);
  other.feature = "other";
  other.side = buffer_side;
  LookupPlan(generation_of(table), {other, spec}, {{OutputType::kF32, buffer_side, 8}});
}

}  // namespace

TEST(combiners_do_what_their_names_say) {
  const MemoryTable table = hashed_table();
  const Ids ids = {1, 2, 6, 4, 4};
  const Ids offsets = {0, 3, 3, 5};
  const auto run = [&](Combiner combiner) {
    return Single(table, spec_of(combiner, BagForm::kOffsets, 3)).run(bagged(ids, offsets), 3);
  };
  CHECK(run(Combiner::kSum) == (std::vector<float>{9, 0, 8}));
  CHECK(run(Combiner::kMean) == (std::vector<float>{3, 0, 4}));
  CHECK(run(Combiner::kSqrtn) == (std::vector<float>{9 / std::sqrt(3.0f), 0, 8 / std::sqrt(2.0f)}));
  CHECK(run(Combiner::kMax) == (std::vector<float>{6, 0, 4}));
  CHECK(run(Combiner::kNone) == (std::vector<float>{1, 2, 6, 0, 0, 0, 4, 4, 0}));
}

TEST(weights_divide_by_their_sum_and_a_sum_of_zero_gives_zeros) {
  const MemoryTable table = hashed_table();
  const Ids ids = {2, 4, 3, 5};
  const Ids lengths = {2, 2};
  const float weights[] = {1, 3, 1, -1};
  LookupSpec spec = spec_of(Combiner::kMean, BagForm::kLengths, 2);
  spec.weighted = true;
  CHECK(Single(table, spec).run(bagged(ids, lengths, weights), 2) == (std::vector<float>{3.5, 0}));
  spec.combiner = Combiner::kSqrtn;
  CHECK(Single(table, spec).run(bagged(ids, lengths, weights), 2) ==
        (std::vector<float>{14 / std::sqrt(10.0f), -2 / std::sqrt(2.0f)}));
}

TEST(padding_is_not_counted_and_leaves_its_place_in_a_sequence_empty) {
  const MemoryTable table = hashed_table();
  const Ids ids = {2, 9, 4, 9, 9, 9};
  LookupSpec spec = spec_of(Combiner::kMean, BagForm::kFixed, 3);
  spec.padding_key = 9;
  CHECK(Single(table, spec).run(fixed(ids, 3), 2) == (std::vector<float>{3, 0}));
  spec.combiner = Combiner::kMax;
  CHECK(Single(table, spec).run(fixed(ids, 3), 2) == (std::vector<float>{4, 0}));
  spec.combiner = Combiner::kNone;
  CHECK(Single(table, spec).run(fixed(ids, 3), 2) == (std::vector<float>{2, 0, 4, 0, 0, 0}));
}

TEST(a_version_sees_its_own_rows) {
  MemoryTable table = hashed_table();
  table.put(3, 2, filled(30));
  table.put(3, 4, std::nullopt);
  table.put(3, 5, filled(50));
  table.put(77, 3, filled(70));
  Single single(table, spec_of(Combiner::kSum, BagForm::kFixed, 1));
  const Ids ids = {3, 77};
  CHECK(single.run(fixed(ids), 2, 1) == (std::vector<float>{3, 0}));
  CHECK(single.run(fixed(ids), 2, 2) == (std::vector<float>{30, 0}));
  CHECK(single.run(fixed(ids), 2, 3) == (std::vector<float>{30, 70}));
  CHECK(single.run(fixed(ids), 2, 4) == (std::vector<float>{0, 70}));
  CHECK(single.run(fixed(ids), 2, 9) == (std::vector<float>{50, 70}));
}

TEST(original_ids_count_from_the_end_and_must_be_rows) {
  const MemoryTable table = dense_table();
  LookupSpec spec = spec_of(Combiner::kNone, BagForm::kFixed, 1);
  spec.missing = MissingPolicy::kOriginal;
  Single single(table, spec);
  const Ids good = {-10, 9, -1};
  const Ids high = {1, 10};
  const Ids low = {-11};
  CHECK(single.run(fixed(good), 3) == (std::vector<float>{0, 9, 9}));
  CHECK_THROWS(Refused, "feature 'item', row 1: key 10 is not a row of the table, which takes -10",
               single.run(fixed(high), 2));
  CHECK_THROWS(Refused, "row 0: key -11", single.run(fixed(low), 1));
}

TEST(a_missing_key_is_named_with_its_row) {
  const MemoryTable table = hashed_table();
  const Ids ids = {1, 2, 3, 4, -5, 6};
  const Ids lengths = {2, 0, 3, 1};
  const Ids offsets = {0, 2, 2, 5};
  LookupSpec spec = spec_of(Combiner::kSum, BagForm::kLengths, 3);
  spec.missing = MissingPolicy::kError;
  CHECK_THROWS(Refused, "feature 'item', row 2: key -5 is not in the table",
               Single(table, spec).run(bagged(ids, lengths), 4));
  spec.bag = BagForm::kOffsets;
  CHECK_THROWS(Refused, "row 2: key -5", Single(table, spec).run(bagged(ids, offsets), 4));
  spec.bag = BagForm::kFixed;
  CHECK_THROWS(Refused, "row 1: key -5", Single(table, spec).run(fixed(ids, 3), 2));
}

TEST(bags_that_do_not_fit_their_ids_are_refused) {
  const MemoryTable table = hashed_table();
  const auto refused = [&](BagForm form, const Ids& bag, const char* what, std::int64_t rows = 3) {
    const Ids ids = {1, 2, 3, 4, 5};
    for (const Combiner combiner : {Combiner::kSum, Combiner::kNone}) {
      CHECK_THROWS(Refused, what,
                   Single(table, spec_of(combiner, form, 4)).run(bagged(ids, bag), rows));
    }
  };
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  refused(BagForm::kLengths, {1, -1, 2}, "feature 'item', row 1: length -1 is negative");
  refused(BagForm::kLengths, {1, kLeast, 2}, "row 1: length -9223372036854775808");
  refused(BagForm::kLengths, {2, 2, 2}, "row 2: lengths reach to id 6, but there are 5 ids");
  refused(BagForm::kLengths, {0, 5, 0}, "row 1: 5 ids are too many; at most 4 are taken");
  refused(BagForm::kLengths, {1, kMost, 1}, "row 1: lengths reach");
  refused(BagForm::kLengths, {kMost, kMost, 2}, "row 0: lengths reach");
  refused(BagForm::kLengths, {1, 1}, "2 lengths do not fit the rows");
  refused(BagForm::kLengths, {1, 1, 1, 1}, "4 lengths do not fit the rows");
  refused(BagForm::kOffsets, {0, 2, 1, 5}, "row 2: offset 1 is less than the one before it");
  refused(BagForm::kOffsets, {0, 2, 4, 6}, "row 2: offsets reach to id 6");
  refused(BagForm::kOffsets, {1, 2, 3, 4}, "row 0: the first offset is 1; it must be 0");
  refused(BagForm::kOffsets, {-1, 2, 3, 4}, "row 0: offset -1 is negative");
  refused(BagForm::kOffsets, {0, kLeast, 3, 4}, "offset -9223372036854775808 is negative");
  refused(BagForm::kOffsets, {0, 0, 5, 5}, "row 1: 5 ids are too many");
  refused(BagForm::kOffsets, {0, 2, 6}, "row 1: offsets reach to id 6");
  refused(BagForm::kOffsets, {0, 0, 0}, "row 2: 5 ids are too many");
  refused(BagForm::kOffsets, {0, 1, kMost}, "row 1: offsets reach");
  refused(BagForm::kOffsets, {0, 1, 2, 3, 4}, "5 offsets do not fit the rows");
  refused(BagForm::kOffsets, {}, "0 offsets do not fit the rows");
}

TEST(float_ids_are_truncated_and_refused_outside_of_64_bits) {
  const MemoryTable table = hashed_table();
  LookupSpec spec = spec_of(Combiner::kSum, BagForm::kFixed, 1);
  const auto run = [&](std::vector<double> ids) {
    spec.id_type = IdType::kFloat64;
    const auto doubles = Single(table, spec).run({ids.data(), 1, 0, nullptr, 0, nullptr}, 2);
    std::vector<float> narrow(ids.begin(), ids.end());
    spec.id_type = IdType::kFloat32;
    const auto floats = Single(table, spec).run({narrow.data(), 1, 0, nullptr, 0, nullptr}, 2);
    CHECK(doubles == floats);
    return doubles;
  };
  CHECK(run({2.9, -0x1p63}) == (std::vector<float>{2, 0}));
  CHECK(run({-0.9, 1}) == (std::vector<float>{0, 1}));
  const double bad[] = {0x1p63, -0x1.001p63, std::numeric_limits<double>::infinity(),
                        std::numeric_limits<double>::quiet_NaN()};
  for (const double id : bad) {
    CHECK_THROWS(Refused, "feature 'item', row 1: id ", run({1, id}));
  }
}

TEST(damaged_words_make_keys_missing) {
  MemoryTable table = hashed_table();
  table.put(3, 2, filled(30));
  std::mt19937_64 random(1);
  Single single(table, spec_of(Combiner::kSum, BagForm::kFixed, 1));
  Ids ids;
  for (std::int64_t id = 0; id < 60; ++id) ids.push_back(id % 12);
  for (int round = 0; round < 200; ++round) {
    for (std::uint64_t group = 0; group <= 8; ++group) {
      for (Slot& slot : table.index()[group].slots) {
        // Row numbers of any kind, versions small enough to be looked at.
        slot = {random() % 12, (random() & 0x80000007FFFFFFFF) | std::uint64_t{random()} % 3 << 32};
      }
    }
    for (std::uint64_t& link : table.previous()) link = random();
    single.run(fixed(ids), 60, 1);
  }
}

TEST(a_full_index_ends_a_miss) {
  MemoryTable table = hashed_table();
  for (std::uint64_t group = 0; group < 8; ++group) {
    for (Slot& slot : table.index()[group].slots) slot = {12345, kOverflow};
  }
  const Ids ids = {1};
  Single single(table, spec_of(Combiner::kSum, BagForm::kFixed, 1));
  CHECK(single.run(fixed(ids), 1) == (std::vector<float>{0}));
}

TEST(a_ring_of_undo_links_ends) {
  MemoryTable table = hashed_table();
  table.put(3, 7, filled(30));
  for (std::uint64_t& link : table.previous()) link = make_rv(5, 9);
  const Ids ids = {3};
  Single single(table, spec_of(Combiner::kSum, BagForm::kFixed, 1));
  CHECK(single.run(fixed(ids), 1, 6) == (std::vector<float>{0}));
}

TEST(no_rows_write_nothing) {
  const MemoryTable table = hashed_table();
  for (const BagForm form : {BagForm::kFixed, BagForm::kLengths, BagForm::kOffsets}) {
    CHECK(Single(table, spec_of(Combiner::kSum, form, 2)).run({}, 0).empty());
  }
}

TEST(plans_that_contradict_themselves_are_refused) {
  const MemoryTable hashed = hashed_table();
  const MemoryTable dense = dense_table();
  using Bad = std::invalid_argument;
  LookupSpec good = spec_of(Combiner::kSum, BagForm::kFixed, 1);
  good.column = kDim;
  make_plan(hashed, good);

  LookupSpec spec = good;
  spec.column = 2;
  CHECK_THROWS(Bad, "feature 'item': its columns overlap those of feature 'other'",
               make_plan(hashed, spec));
  spec.column = 6;
  CHECK_THROWS(Bad, "columns 6 to 9 are not all in its buffer of 8", make_plan(hashed, spec));
  spec.column = std::numeric_limits<std::size_t>::max();
  CHECK_THROWS(Bad, "are not all in its buffer", make_plan(hashed, spec));
  spec = good;
  spec.buffer = 1;
  CHECK_THROWS(Bad, "there is no buffer", make_plan(hashed, spec));
  spec = good;
  spec.table = 1;
  CHECK_THROWS(Bad, "there is no table", make_plan(hashed, spec));
  for (const std::uint32_t length : {0u, LookupPlan::kMaxLength + 1}) {
    spec = good;
    spec.max_length = length;
    CHECK_THROWS(Bad, "it must be 1 to 1048576", make_plan(hashed, spec));
  }
  for (const Combiner combiner : {Combiner::kNone, Combiner::kMax}) {
    spec = good;
    spec.weighted = true;
    spec.combiner = combiner;
    CHECK_THROWS(Bad, "weights go with", make_plan(hashed, spec));
  }
  spec = good;
  spec.missing = MissingPolicy::kOriginal;
  CHECK_THROWS(Bad, "'original' is for tables of dense ids", make_plan(hashed, spec));
  make_plan(dense, spec);
  spec.missing = MissingPolicy::kVector;
  spec.missing_row = {1, 2};
  CHECK_THROWS(Bad, "has 2 numbers, those of the table have 3", make_plan(hashed, spec));
  spec = good;
  spec.bag = BagForm::kLengths;
  spec.bag_type = IdType::kFloat32;
  CHECK_THROWS(Bad, "int32 or int64", make_plan(hashed, spec));
  CHECK_THROWS(Bad, "cannot write a buffer of users", make_plan(hashed, good, Side::kUser));
  CHECK_THROWS(Bad, "instruction set 'mmx'", LookupPlan(generation_of(hashed), {}, {}, "mmx"));
}

TEST(arguments_that_do_not_fit_the_plan_are_refused) {
  const MemoryTable table = hashed_table();
  LookupSpec spec = spec_of(Combiner::kSum, BagForm::kFixed, 1);
  spec.side = Side::kUser;
  const LookupPlan plan(generation_of(table), {spec}, {{OutputType::kF32, Side::kRow, kDim}});
  const Ids ids = {1, 2};
  std::vector<float> out(2 * kDim);
  const LookupArguments good{{fixed(ids)}, {{out.data(), kDim}}};
  const std::int64_t users[] = {1, 0};
  const std::int64_t strangers[] = {0, 2};
  using Bad = std::invalid_argument;

  plan.run(good, {kFirstVersion, 2, 2, users});
  CHECK_EQ(out[0], 2.0f);
  CHECK_EQ(out[kDim], 1.0f);
  plan.run(good, {kFirstVersion, 2, 1});
  CHECK_EQ(out[kDim], 1.0f);
  CHECK_THROWS(Refused, "row 1 is of user 2, but there are 2 users",
               plan.run(good, {kFirstVersion, 2, 2, strangers}));
  CHECK_THROWS(Bad, "a batch of 2 users needs a user index", plan.run(good, {kFirstVersion, 2, 2}));
  CHECK_THROWS(Bad, "a batch of 0 users", plan.run(good, {kFirstVersion, 2}));
  CHECK_THROWS(Bad, "store version 0 cannot be", plan.run(good, {0, 2, 1}));
  CHECK_THROWS(Bad, "rows and users of a batch", plan.run(good, {kFirstVersion, -1, 1}));
  LookupArguments bad = good;
  bad.features.clear();
  CHECK_THROWS(Bad, "the plan has 1 lookups", plan.run(bad, {kFirstVersion, 2, 1}));
  bad = good;
  bad.features[0].ids = nullptr;
  CHECK_THROWS(Bad, "feature 'item': ids", plan.run(bad, {kFirstVersion, 2, 1}));
  bad = good;
  bad.outputs[0].stride = kDim - 1;
  CHECK_THROWS(Bad, "a stride of 3 elements", plan.run(bad, {kFirstVersion, 2, 1}));
}

int main() { return anabranch::testing::run_tests(); }
