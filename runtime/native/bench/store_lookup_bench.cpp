// Speed of embedding lookups on one core against the physical limit: reads of the same rows alone.
//
//   cmake --build build/native-plain --target store_lookup_bench &&
//   build/native-plain/runtime/native/tests/store/lookup/store_lookup_bench [ROWS_IN_MILLIONS]
//
// Thread CPU time, which other processes disturb least: medians of interleaved rounds, and medians
// of the ratios within a round. Tables are made in memory in the layout of a generation.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "anabranch/store/lookup.h"

using namespace anabranch::store;

namespace {

constexpr int kRounds = 7;

double cpu_seconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Zeroed memory in huge pages, where the system has some.
class HugeMemory {
 public:
  explicit HugeMemory(std::size_t bytes) : bytes_(bytes + kPage) {
    mapping_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping_ == MAP_FAILED) std::abort();
    const auto at = (reinterpret_cast<std::uintptr_t>(mapping_) + kPage - 1) / kPage * kPage;
    data_ = reinterpret_cast<std::byte*>(at);
    madvise(data_, bytes, MADV_HUGEPAGE);
  }
  ~HugeMemory() { munmap(mapping_, bytes_); }
  HugeMemory(const HugeMemory&) = delete;
  HugeMemory& operator=(const HugeMemory&) = delete;

  std::byte* data() const { return data_; }

 private:
  static constexpr std::size_t kPage = std::size_t{2} << 20;
  std::size_t bytes_;
  void* mapping_;
  std::byte* data_;
};

// A table whose rows are random, with random keys of 64 bits or dense ids.
class BenchTable {
 public:
  BenchTable(RowFormat format, std::uint32_t rows, bool dense, std::mt19937_64& random)
      : rows_(std::size_t{rows} * format.stride()), previous_(8), changed_(rows / 64 + 1) {
    auto* const words = reinterpret_cast<std::uint32_t*>(rows_.data());
    for (std::size_t i = 0; i < std::size_t{rows} * format.stride() / 4; ++i) words[i] = 0x2E002E00;
    view_.format = format;
    view_.base_rows = rows;
    view_.base = rows_.data();
    view_.arena = rows_.data();
    view_.previous = previous_.data();
    view_.changed = changed_.data();
    view_.rvs = previous_.data();
    if (dense) {
      for (std::uint32_t row = 0; row < rows; ++row) keys_.push_back(row);
      return;
    }
    view_.seed = 0x9E3779B97F4A7C15;
    view_.groups = groups_for(rows);
    index_ = std::make_unique<HugeMemory>((view_.groups + 1) * sizeof(Group));
    view_.index = reinterpret_cast<Group*>(index_->data());
    for (std::uint32_t row = 0; row < rows; ++row) {
      keys_.push_back(random() | 2);
      insert(keys_.back(), row);
    }
  }

  const TableView& view() const { return view_; }
  const std::vector<std::uint64_t>& keys() const { return keys_; }

 private:
  void insert(std::uint64_t key, std::uint32_t row) {
    auto* const groups = reinterpret_cast<Group*>(index_->data());
    std::uint64_t group = home_group(key, view_.seed, view_.groups);
    for (;;) {
      for (std::size_t i = 0; i < kSlotsPerGroup; ++i) {
        Slot& slot = groups[group].slots[i];
        if (slot.key != kEmptyKey) continue;
        slot = {key, make_rv(row, kFirstVersion)};
        return;
      }
      groups[group].slots[0].rv |= kOverflow;
      if (++group == view_.groups) group = 0;
    }
  }

  HugeMemory rows_;
  std::unique_ptr<HugeMemory> index_;
  std::vector<std::uint64_t> previous_;
  std::vector<std::uint64_t> changed_;
  std::vector<std::uint64_t> keys_;
  TableView view_{};
};

class BenchGeneration : public Generation {
 public:
  explicit BenchGeneration(const std::vector<std::unique_ptr<BenchTable>>& tables)
      : Generation(nullptr, views(tables), 0) {}

 private:
  static std::vector<TableView> views(const std::vector<std::unique_ptr<BenchTable>>& tables) {
    std::vector<TableView> views;
    for (const auto& table : tables) views.push_back(table->view());
    return views;
  }
};

// Row numbers; `skewed`: few rows are asked for often, roughly as clicks are.
std::vector<std::uint32_t> draw(std::uint32_t rows, std::size_t count, bool skewed,
                                std::mt19937_64& random) {
  std::vector<std::uint32_t> drawn(count);
  for (std::uint32_t& row : drawn) {
    double at = static_cast<double>(random() >> 11) * 0x1p-53;
    if (skewed) at = at * at * at * at;
    row = static_cast<std::uint32_t>(at * rows);
  }
  return drawn;
}

struct Candidate {
  std::string name;
  std::function<void()> work;
};

// Runs the candidates in turn; the first is what the others are compared with.
void compare(const std::string& title, double ids, const std::vector<Candidate>& candidates) {
  std::vector<std::vector<double>> seconds(candidates.size());
  for (const Candidate& candidate : candidates) candidate.work();
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const double begin = cpu_seconds();
      candidates[i].work();
      seconds[i].push_back(cpu_seconds() - begin);
    }
  }
  const auto median = [](std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + kRounds / 2, values.end());
    return values[kRounds / 2];
  };
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    std::vector<double> ratios;
    for (int round = 0; round < kRounds; ++round) {
      const auto r = static_cast<std::size_t>(round);
      ratios.push_back(seconds[i][r] / seconds[0][r]);
    }
    std::printf("%-34s %-28s %9.2f ns/id  %6.2fx\n", title.c_str(), candidates[i].name.c_str(),
                median(seconds[i]) / ids * 1e9, median(ratios));
  }
  std::fflush(stdout);
}

volatile std::uint64_t sink;

// The limit: reads `bytes` from each of the places, sixteen places ahead of itself.
void read_lines(const std::byte* base, std::size_t bytes, std::size_t stride,
                const std::vector<std::uint32_t>& places) {
  constexpr std::size_t kAhead = 16;
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (i + kAhead < places.size()) {
      for (std::size_t at = 0; at < bytes; at += 64) {
        __builtin_prefetch(base + places[i + kAhead] * stride + at);
      }
    }
    for (std::size_t at = 0; at < bytes; at += 64) {
      std::uint64_t word;
      __builtin_memcpy(&word, base + places[i] * stride + at, sizeof word);
      sum += word;
    }
  }
  sink = sum;
}

LookupSpec plain_lookup(std::size_t table, std::size_t column) {
  LookupSpec spec;
  spec.feature = "feature " + std::to_string(table);
  spec.table = table;
  spec.combiner = Combiner::kNone;
  spec.column = column;
  return spec;
}

std::vector<std::int64_t> keys_of(const BenchTable& table,
                                  const std::vector<std::uint32_t>& places) {
  std::vector<std::int64_t> keys;
  for (const std::uint32_t place : places) {
    keys.push_back(static_cast<std::int64_t>(table.keys()[place]));
  }
  return keys;
}

// One table of many rows, batches of a thousand.
void one_table(std::uint32_t rows, std::uint32_t dim) {
  std::mt19937_64 random(dim);
  std::vector<std::unique_ptr<BenchTable>> tables;
  tables.push_back(
      std::make_unique<BenchTable>(RowFormat{RowType::kF32, dim}, rows, false, random));
  const auto generation = std::make_shared<BenchGeneration>(tables);
  const TableView& view = tables[0]->view();
  const LookupPlan plan(generation, {plain_lookup(0, 0)}, {{OutputType::kF32, Side::kRow, dim}});
  constexpr std::int64_t kBatch = 1000;
  std::vector<float> out(kBatch * dim);
  const auto run = [&](const std::vector<std::int64_t>& ids) {
    LookupArguments arguments;
    arguments.features.resize(1);
    arguments.outputs.push_back({out.data(), dim});
    for (std::size_t i = 0; i + kBatch <= ids.size(); i += kBatch) {
      arguments.features[0] = {ids.data() + i, 1, 0, nullptr, 0, nullptr};
      plan.run(arguments, {kFirstVersion, kBatch});
    }
  };
  for (const bool skewed : {false, true}) {
    const auto places = draw(rows, 400000, skewed, random);
    const auto lines = draw(static_cast<std::uint32_t>(view.groups), places.size(), skewed, random);
    const auto ids = keys_of(*tables[0], places);
    auto absent = ids;
    for (std::int64_t& id : absent) id ^= std::int64_t{1} << 40;
    const std::string title = "D=" + std::to_string(dim) + (skewed ? " skewed" : " uniform");
    compare(title, static_cast<double>(ids.size()),
            {{"rows alone", [&] { read_lines(view.base, dim * 4, view.format.stride(), places); }},
             {"rows, and as many index lines",
              [&] {
                read_lines(view.base, dim * 4, view.format.stride(), places);
                read_lines(reinterpret_cast<const std::byte*>(view.index), 64, 64, lines);
              }},
             {"lookup", [&] { run(ids); }},
             {"lookup, all missing", [&] { run(absent); }}});
  }
}

// One request: many tables in one call. `bag`: mean ids of a row; 0 for one id exactly.
void many_tables(bool dense, RowType type, std::int64_t n, std::size_t bag) {
  constexpr std::size_t kTables = 26;
  constexpr std::uint32_t kRows = 100000;
  constexpr std::uint32_t kDim = 32;
  constexpr std::size_t kRequests = 32;
  std::mt19937_64 random(1);
  std::vector<std::unique_ptr<BenchTable>> tables;
  std::vector<LookupSpec> specs;
  for (std::size_t t = 0; t < kTables; ++t) {
    tables.push_back(std::make_unique<BenchTable>(RowFormat{type, kDim}, kRows, dense, random));
    LookupSpec spec = plain_lookup(t, t * kDim);
    if (bag != 0) {
      spec.combiner = Combiner::kSum;
      spec.bag = BagForm::kOffsets;
      spec.max_length = 1000;
    }
    specs.push_back(spec);
  }
  const auto generation = std::make_shared<BenchGeneration>(tables);
  std::vector<float> out(static_cast<std::size_t>(n) * kTables * kDim);
  std::vector<std::vector<std::int64_t>> ids;
  std::vector<std::vector<std::int64_t>> offsets;
  std::vector<LookupArguments> requests(kRequests);
  double count = 0;
  for (LookupArguments& request : requests) {
    for (const auto& table : tables) {
      auto& ends = offsets.emplace_back(1, 0);
      for (std::int64_t row = 0; row < n; ++row) {
        const std::size_t length = bag == 0 ? 1 : 1 + random() % (2 * bag - 1);
        ends.push_back(ends.back() + static_cast<std::int64_t>(length));
      }
      ids.push_back(
          keys_of(*table, draw(kRows, static_cast<std::size_t>(ends.back()), true, random)));
      count += static_cast<double>(ids.back().size());
      request.features.push_back(
          {ids.back().data(), 1, ends.back(), offsets.back().data(), n + 1, nullptr});
    }
    request.outputs.push_back({out.data(), kTables * kDim});
  }
  const std::string title = std::string(dense ? "26 dense" : "26 hashed") +
                            (type == RowType::kF32   ? " f32"
                             : type == RowType::kF16 ? " f16"
                                                     : " int8") +
                            ", N=" + std::to_string(n) + (bag != 0 ? ", bags" : "");
  std::vector<Candidate> candidates;
  std::vector<std::unique_ptr<LookupPlan>> plans;
  for (const std::string_view isa : LookupPlan::instruction_sets()) {
    plans.push_back(std::make_unique<LookupPlan>(
        generation, specs, std::vector<BufferSpec>{{OutputType::kF32, Side::kRow, kTables * kDim}},
        isa));
    const LookupPlan& plan = *plans.back();
    candidates.push_back({std::string(isa), [&, n] {
                            for (const LookupArguments& request : requests) {
                              plan.run(request, {kFirstVersion, n});
                            }
                          }});
  }
  compare(title, count, candidates);
}

}  // namespace

int main(int count, char** arguments) {
  const auto rows = static_cast<std::uint32_t>(1e6 * (count > 1 ? std::atof(arguments[1]) : 4));
  for (const std::uint32_t dim : {16u, 32u, 64u}) one_table(rows, dim);
  for (const std::int64_t n : {1, 100, 1000}) many_tables(false, RowType::kF32, n, 0);
  for (const std::int64_t n : {1, 100}) many_tables(false, RowType::kF32, n, 20);
  many_tables(true, RowType::kF32, 100, 20);
  for (const RowType type : {RowType::kF16, RowType::kInt8}) many_tables(false, type, 100, 0);
}
