// Plans run in threads beside a writer that changes, reclaims and grows: whatever a kernel reads is
// of exactly the version that its thread leased. Plain builds run the probes of each instruction
// set; under ThreadSanitizer all of them probe word by word (see probing.h).
#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

#include "anabranch/store/lookup.h"
#include "check.h"
#include "store/writer/leased_readers.h"

using namespace anabranch::store;
using namespace anabranch::testing;

namespace {

constexpr std::uint32_t kDim = 4;
constexpr std::int64_t kRows = 24;
constexpr std::uint32_t kBag = 3;
constexpr std::uint32_t kVersions = 1500;

LookupSpec spec_of(const char* feature, std::size_t table, Combiner combiner,
                   std::uint32_t max_length, std::size_t column) {
  LookupSpec spec;
  spec.feature = feature;
  spec.table = table;
  spec.combiner = combiner;
  spec.max_length = max_length;
  spec.column = column;
  return spec;
}

// Single keys, bags and dense ids in one buffer.
LookupPlan plan_over(std::shared_ptr<const Generation> generation, std::string_view isa) {
  return LookupPlan(
      std::move(generation),
      {spec_of("key", 0, Combiner::kNone, 1, 0), spec_of("bag", 0, Combiner::kSum, kBag, kDim),
       spec_of("id", 1, Combiner::kNone, 1, 2 * kDim)},
      {{OutputType::kF32, Side::kRow, 3 * kDim}}, isa);
}

// What a row of the table holds at a version; zeros where the key is missing.
std::array<float, kDim> expected_row(std::uint64_t key, std::uint32_t version, bool dense) {
  std::uint64_t tag = 0;
  if (!dense && key >= kPassing) {
    if (key == kPassing + version && version > kFirstVersion) tag = version;
  } else {
    tag = expected_tag(key, version, dense);
  }
  std::array<float, kDim> row{};
  if (tag != 0) std::ranges::copy(row_values(kDim, tag), row.begin());
  return row;
}

// Ids of a batch, and a run that compares every number.
class Caller {
 public:
  Caller(std::uint64_t seed, std::string_view isa) : random_(seed), isa_(isa) {}

  void look_up(const Epoch& epoch) {
    if (epoch.generation != generation_) {
      generation_ = epoch.generation;
      plan_.emplace(plan_over(generation_, isa_));
    }
    draw(epoch.version);
    std::fill(out_.begin(), out_.end(), -1.0f);
    LookupArguments arguments;
    arguments.features.push_back({keys_.data(), 1, kRows, nullptr, 0, nullptr});
    arguments.features.push_back({bags_.data(), kBag, kRows * kBag, nullptr, 0, nullptr});
    arguments.features.push_back({ids_.data(), 1, kRows, nullptr, 0, nullptr});
    arguments.outputs.push_back({out_.data(), 3 * kDim});
    plan_->run(arguments, {epoch.version, kRows});
    check(epoch.version);
  }

 private:
  // Keys that stay, and those that are there for a version alone; a version published meanwhile may
  // have inserted them already.
  std::int64_t some_key(std::uint32_t version) {
    const std::uint64_t key =
        random_() % 6 != 0 ? random_() % kKeys : kPassing + version + random_() % 3 - 1;
    return static_cast<std::int64_t>(key);
  }
  void draw(std::uint32_t version) {
    for (auto& key : keys_) key = some_key(version);
    for (auto& key : bags_) key = some_key(version);
    for (auto& id : ids_) id = static_cast<std::int64_t>(random_() % kDenseIds);
  }
  void check(std::uint32_t version) const {
    const auto row_at = [&](std::int64_t id, bool dense) {
      return expected_row(static_cast<std::uint64_t>(id), version, dense);
    };
    for (std::size_t row = 0; row < kRows; ++row) {
      const float* const out = out_.data() + row * 3 * kDim;
      const auto single = row_at(keys_[row], false);
      const auto dense = row_at(ids_[row], true);
      std::array<float, kDim> sum{};
      for (std::size_t i = 0; i < kBag; ++i) {
        const auto part = row_at(bags_[row * kBag + i], false);
        for (std::size_t d = 0; d < kDim; ++d) sum[d] += part[d];
      }
      CHECK(std::equal(single.begin(), single.end(), out));
      CHECK(std::equal(sum.begin(), sum.end(), out + kDim));
      CHECK(std::equal(dense.begin(), dense.end(), out + 2 * kDim));
    }
  }

  std::mt19937_64 random_;
  std::string_view isa_;
  std::shared_ptr<const Generation> generation_;
  std::optional<LookupPlan> plan_;
  std::array<std::int64_t, kRows> keys_{};
  std::array<std::int64_t, kRows * kBag> bags_{};
  std::array<std::int64_t, kRows> ids_{};
  std::array<float, kRows * 3 * kDim> out_{};
};

}  // namespace

TEST(kernels_see_exactly_their_version_beside_changes_reclaim_and_growth) {
  const auto sets = LookupPlan::instruction_sets();
  const std::size_t readers = std::max<std::size_t>(2, sets.size());
  std::vector<std::atomic<std::uint64_t>> runs(readers);
  read_beside_changes(readers, kVersions, 250,
                      [&](Board& board, std::size_t reader, const std::atomic<bool>& done) {
                        Caller caller(reader, sets[reader % sets.size()]);
                        while (!done) {
                          const Epoch epoch = board.lease(reader);
                          for (int batch = 0; batch < 3; ++batch) {
                            caller.look_up(epoch);
                            ++runs[reader];
                          }
                          board.give_back(reader);
                        }
                      });
  for (const auto& count : runs) CHECK(count > 0);
}

int main() { return run_tests(); }
