// Bags and user indexes that another thread rewrites during a run: a fault of the caller's, which
// may cost right numbers, but never reads or writes outside of what was given (AddressSanitizer
// sees that). Kernels read these arrays plainly, so ThreadSanitizer has nothing to say here.
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <thread>
#include <vector>

#include "anabranch/store/errors.h"
#include "anabranch/store/lookup.h"
#include "check.h"
#include "memory_table.h"

using namespace anabranch::store;
using anabranch::testing::MemoryGeneration;
using anabranch::testing::MemoryTable;

namespace {

constexpr std::uint32_t kDim = 4;
constexpr std::int64_t kRows = 96;
constexpr std::uint32_t kLongest = 4;
constexpr int kRuns = 400;

// Writes one after another of `states` into `entries`, the first every other time, while it lives.
template <class Entry>
class Rewriting {
 public:
  Rewriting(std::span<Entry> entries, std::vector<std::vector<Entry>> states)
      : thread_([this, entries, states = std::move(states)] {
          for (std::size_t turn = 1; !done_.load(std::memory_order_relaxed); ++turn) {
            write(entries, states[turn % states.size()]);
            write(entries, states[0]);
          }
        }) {}
  ~Rewriting() {
    done_.store(true, std::memory_order_relaxed);
    thread_.join();
  }
  Rewriting(const Rewriting&) = delete;
  Rewriting& operator=(const Rewriting&) = delete;

 private:
  static void write(std::span<Entry> entries, const std::vector<Entry>& state) {
    for (std::size_t i = 0; i < entries.size(); ++i) {
      std::atomic_ref(entries[i]).store(state[i], std::memory_order_relaxed);
    }
    // Long enough for a run to find them good.
    for (int i = 0; i < 2000; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
  }

  std::atomic<bool> done_ = false;
  std::thread thread_;
};

std::shared_ptr<const Generation> generation() {
  static const MemoryTable table = [] {
    MemoryTable made = MemoryTable::hashed({RowType::kF32, kDim}, 40, 8);
    for (std::uint64_t key = 1; key < 10; ++key) {
      made.put(key, kFirstVersion, MemoryTable::Row(kDim, static_cast<float>(key)));
    }
    return made;
  }();
  return std::make_shared<MemoryGeneration>(std::vector<TableView>{table.view()});
}

LookupSpec bag_spec(BagForm bag, IdType bag_type, Combiner combiner) {
  LookupSpec spec;
  spec.feature = "item";
  spec.table = 0;
  spec.combiner = combiner;
  spec.bag = bag;
  spec.bag_type = bag_type;
  spec.max_length = kLongest;
  return spec;
}

// Good bags first, then bad ones: none, all too long, negative, the largest and smallest numbers.
template <class Entry>
std::vector<std::vector<Entry>> bags(BagForm form) {
  std::vector<Entry> good(kRows, 2);
  if (form == BagForm::kOffsets) {
    for (std::size_t row = 0; row < good.size(); ++row) good[row] = static_cast<Entry>(2 * row);
  }
  std::vector<std::vector<Entry>> all = {std::move(good)};
  for (const Entry wrong : {Entry{0}, Entry{1}, Entry{-1}, Entry{kLongest}, Entry{1 << 20},
                            std::numeric_limits<Entry>::max(), std::numeric_limits<Entry>::min()}) {
    all.emplace_back(kRows, wrong);
  }
  return all;
}

template <class Entry, class Id>
void run_bags(const LookupSpec& spec, const std::vector<Id>& ids) {
  const std::size_t width = spec.combiner == Combiner::kNone ? kDim * kLongest : kDim;
  const std::vector<float> weights(ids.size(), 1.0f);
  const auto states = bags<Entry>(spec.bag);
  for (const std::string_view isa : LookupPlan::instruction_sets()) {
    const LookupPlan plan(generation(), {spec}, {{OutputType::kF32, Side::kRow, width}}, isa);
    std::vector<Entry> entries = states[0];
    std::vector<float> out(kRows * width);
    LookupArguments arguments;
    arguments.features.push_back({ids.data(), 0, static_cast<std::int64_t>(ids.size()),
                                  entries.data(), kRows, spec.weighted ? weights.data() : nullptr});
    arguments.outputs.push_back({out.data(), static_cast<std::int64_t>(width)});
    {
      const Rewriting<Entry> rewriting(entries, states);
      for (int i = 0; i < kRuns; ++i) {
        try {
          plan.run(arguments, {kFirstVersion, kRows});
        } catch (const Refused&) {  // seen in time
        }
      }
    }
    entries = states[0];
    try {
      plan.run(arguments, {kFirstVersion, kRows});
    } catch (const Refused&) {  // of an id
      continue;
    }
    CHECK(out[0] == (spec.combiner == Combiner::kSum ? 6.0f : 3.0f));
  }
}

const std::vector<std::int64_t> kIds(2 * kRows, 3);

}  // namespace

TEST(bags_that_change_during_a_run_stay_within_its_arrays) {
  for (const BagForm form : {BagForm::kLengths, BagForm::kOffsets}) {
    for (const Combiner combiner : {Combiner::kNone, Combiner::kSum, Combiner::kMax}) {
      run_bags<std::int64_t>(bag_spec(form, IdType::kInt64, combiner), kIds);
      run_bags<std::int32_t>(bag_spec(form, IdType::kInt32, combiner), kIds);
    }
    LookupSpec weighted = bag_spec(form, IdType::kInt64, Combiner::kSum);
    weighted.weighted = true;
    run_bags<std::int64_t>(weighted, kIds);
  }
}

TEST(a_refused_id_in_bags_that_change_is_described_from_within_them) {
  std::vector<double> ids(2 * kRows, 3);
  ids.back() = std::nan("");
  for (const BagForm form : {BagForm::kLengths, BagForm::kOffsets}) {
    LookupSpec spec = bag_spec(form, IdType::kInt64, Combiner::kSum);
    spec.id_type = IdType::kFloat64;
    run_bags<std::int64_t>(spec, ids);
  }
}

TEST(a_user_index_that_changes_during_a_run_reads_no_other_memory) {
  LookupSpec spec = bag_spec(BagForm::kFixed, IdType::kInt64, Combiner::kSum);
  spec.side = Side::kUser;
  const LookupPlan plan(generation(), {spec}, {{OutputType::kF32, Side::kRow, kDim}});
  const std::vector<std::int64_t> ids(3 * kLongest, 3);
  std::vector<std::int64_t> users(kRows, 2);
  std::vector<float> out(kRows * kDim);
  LookupArguments arguments;
  arguments.features.push_back({ids.data(), kLongest, 0, nullptr, 0, nullptr});
  arguments.outputs.push_back({out.data(), kDim});
  const Rewriting<std::int64_t> rewriting(
      users, {std::vector<std::int64_t>(kRows, 2), std::vector<std::int64_t>(kRows, 1 << 20),
              std::vector<std::int64_t>(kRows, -(1 << 20)),
              std::vector<std::int64_t>(kRows, std::numeric_limits<std::int64_t>::min())});
  for (int i = 0; i < 20 * kRuns; ++i) {
    try {
      plan.run(arguments,
               {.version = kFirstVersion, .rows = kRows, .users = 3, .user_index = users.data()});
    } catch (const Refused&) {  // seen in time
      continue;
    }
    CHECK(out[0] == 3.0f * kLongest);
  }
}

int main() { return anabranch::testing::run_tests(); }
