// Random plans against a reference that takes one id after the other: every instruction set gives
// the same bits, and writes nothing else.
#include "anabranch/store/lookup.h"

#include <algorithm>
#include <bit>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "check.h"
#include "reference.h"

using namespace anabranch::store;
using anabranch::testing::MemoryGeneration;
using anabranch::testing::MemoryTable;
using anabranch::testing::Reference;
using anabranch::testing::Sample;

namespace {

using Random = std::mt19937_64;

constexpr std::uint32_t kVersions = 5;
constexpr std::uint64_t kKeys = 60;

std::size_t below(Random& random, std::size_t end) { return random() % end; }
bool one_in(Random& random, std::size_t n) { return below(random, n) == 0; }

MemoryTable::Row random_row(Random& random, std::uint32_t dim) {
  MemoryTable::Row row(dim);
  for (float& value : row) {
    value = static_cast<float>(static_cast<std::int64_t>(below(random, 2001)) - 1000) / 64;
  }
  return row;
}

std::uint32_t random_dim(Random& random) {
  constexpr std::uint32_t kDims[] = {1,  2,  3,  4,  5,  7,  8,  9,   12,  15,  16,
                                     17, 20, 31, 32, 33, 40, 64, 100, 128, 200, 1024};
  return kDims[below(random, std::size(kDims))];
}

// Keys of a hashed table: small ones, so that ids hit them, and those with places of their own.
std::uint64_t key_number(std::size_t i) {
  if (i == 0) return kEmptyKey;
  if (i == 1) return kDeadKey;
  return i % 2 == 0 ? i : static_cast<std::uint64_t>(-static_cast<std::int64_t>(i));
}

MemoryTable random_table(Random& random) {
  const RowFormat format{static_cast<RowType>(below(random, 4)), random_dim(random)};
  const std::uint32_t arena = kKeys * kVersions;
  if (one_in(random, 3)) {
    MemoryTable table = MemoryTable::dense(format, kKeys, arena);
    for (std::uint32_t row = 0; row < kKeys; ++row) {
      table.set_base(row, random_row(random, format.dim));
    }
    for (std::uint32_t version = 2; version <= kVersions; ++version) {
      for (std::uint64_t key = 0; key < kKeys; ++key) {
        if (one_in(random, 4)) table.put(key, version, random_row(random, format.dim));
      }
    }
    return table;
  }
  // So few groups that keys lie far from home.
  MemoryTable table = MemoryTable::hashed(format, arena, kKeys / 4 + below(random, 8));
  for (std::uint32_t version = 1; version <= kVersions; ++version) {
    for (std::size_t i = 0; i < kKeys - 10; ++i) {
      if (!one_in(random, 3)) continue;
      const bool deletes = version > 1 && one_in(random, 4);
      table.put(key_number(i), version,
                deletes ? std::nullopt : std::optional(random_row(random, format.dim)));
    }
  }
  return table;
}

LookupSpec random_spec(Random& random, const std::vector<MemoryTable>& tables, std::size_t number) {
  LookupSpec spec;
  spec.feature = "f" + std::to_string(number);
  spec.table = below(random, tables.size());
  const MemoryTable& table = tables[spec.table];
  const bool dense = table.view().is_dense();
  spec.side = one_in(random, 3) ? Side::kUser : Side::kRow;
  spec.id_type = static_cast<IdType>(below(random, 4));
  spec.add = one_in(random, 3) ? static_cast<std::int64_t>(below(random, 9)) - 4 : 0;
  spec.combiner = static_cast<Combiner>(below(random, 5));
  spec.bag = static_cast<BagForm>(below(random, 3));
  spec.bag_type = one_in(random, 2) ? IdType::kInt32 : IdType::kInt64;
  spec.max_length = one_in(random, 2) ? 1 : static_cast<std::uint32_t>(1 + below(random, 50));
  const bool can_weigh = spec.combiner != Combiner::kNone && spec.combiner != Combiner::kMax;
  spec.weighted = can_weigh && one_in(random, 2);
  if (one_in(random, 3)) spec.padding_key = dense ? below(random, 4) : key_number(below(random, 4));
  switch (below(random, 4)) {
    case 0:
      spec.missing = MissingPolicy::kVector;
      spec.missing_row = MemoryTable::Row(table.format().dim, 0.5f);
      break;
    case 1:
      spec.missing = MissingPolicy::kKey;
      spec.missing_key = dense ? below(random, 2 * kKeys) : key_number(below(random, kKeys));
      break;
    case 2:
      if (dense) spec.missing = MissingPolicy::kOriginal;
      break;
    default:
      break;
  }
  return spec;
}

std::int64_t random_id(Random& random, const LookupSpec& spec, const MemoryTable& table) {
  auto id =
      static_cast<std::int64_t>(below(random, 2 * kKeys + 2)) - static_cast<std::int64_t>(kKeys);
  if (spec.missing == MissingPolicy::kOriginal) {
    const auto rows = static_cast<std::int64_t>(table.base_rows());
    id = std::clamp(id, -rows, rows - 1) - spec.add;
  }
  return id;
}

Sample random_sample(Random& random, const LookupSpec& spec, const MemoryTable& table,
                     std::int64_t rows) {
  Sample sample;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::size_t ids = spec.bag == BagForm::kFixed
                                ? spec.max_length
                                : (one_in(random, 3) ? 0 : below(random, spec.max_length + 1));
    auto& row_ids = sample.ids.emplace_back();
    auto& row_weights = sample.weights.emplace_back();
    for (std::size_t i = 0; i < ids; ++i) {
      row_ids.push_back(random_id(random, spec, table));
      row_weights.push_back(static_cast<float>(below(random, 9)) / 4 - 1);
    }
  }
  return sample;
}

// A sample in the memory that a run reads; exactly as much as it may read.
struct Packed {
  std::vector<std::byte> ids;
  std::vector<std::byte> bag;
  std::vector<float> weights;
  FeatureInput input;
};

template <class Number>
void append(std::vector<std::byte>& bytes, Number number) {
  const auto* const at = reinterpret_cast<const std::byte*>(&number);
  bytes.insert(bytes.end(), at, at + sizeof number);
}

void append_id(std::vector<std::byte>& bytes, IdType type, std::int64_t id) {
  // Truncated toward zero again.
  const double part = id > 0 ? 0.75 : id < 0 ? -0.75 : 0.25;
  switch (type) {
    case IdType::kInt32:
      return append(bytes, static_cast<std::int32_t>(id));
    case IdType::kInt64:
      return append(bytes, id);
    case IdType::kFloat32:
      return append(bytes, static_cast<float>(static_cast<double>(id) + part));
    case IdType::kFloat64:
      return append(bytes, static_cast<double>(id) + part);
  }
}

Packed pack(Random& random, const LookupSpec& spec, const Sample& sample) {
  Packed packed;
  const std::int64_t gap = spec.bag == BagForm::kFixed && one_in(random, 2) ? 3 : 0;
  std::int64_t count = 0;
  if (spec.bag == BagForm::kOffsets) append_id(packed.bag, spec.bag_type, 0);
  for (std::size_t row = 0; row < sample.ids.size(); ++row) {
    const auto length = static_cast<std::int64_t>(sample.ids[row].size());
    for (const std::int64_t id : sample.ids[row]) append_id(packed.ids, spec.id_type, id);
    count += length;
    if (row + 1 < sample.ids.size()) {
      for (std::int64_t i = 0; i < gap; ++i) append_id(packed.ids, spec.id_type, 7);
    }
    packed.weights.insert(packed.weights.end(), sample.weights[row].begin(),
                          sample.weights[row].end());
    append_id(packed.bag, spec.bag_type, spec.bag == BagForm::kLengths ? length : count);
  }
  const auto rows = static_cast<std::int64_t>(sample.ids.size());
  std::int64_t bag_count = rows;
  if (spec.bag == BagForm::kOffsets) {
    if (one_in(random, 2)) {
      ++bag_count;
    } else {
      packed.bag.resize(packed.bag.size() / (static_cast<std::size_t>(rows) + 1) *
                        static_cast<std::size_t>(rows));
    }
  }
  packed.bag.shrink_to_fit();
  packed.ids.shrink_to_fit();
  packed.weights.shrink_to_fit();
  packed.input = {packed.ids.data(), spec.max_length + gap, count, packed.bag.data(),
                  bag_count,         packed.weights.data()};
  return packed;
}

// Rounds as a buffer of that type does, and returns the bits.
std::vector<std::byte> rounded(OutputType type, const MemoryTable::Row& row) {
  const RowType as = type == OutputType::kF32 ? RowType::kF32 : RowType::kF16;
  const std::size_t bytes = row.size() * (type == OutputType::kF32 ? 4 : 2);
  std::vector<std::byte> result(bytes);
  // In pieces of a dim that a row can have.
  for (std::size_t begin = 0; begin < row.size(); begin += 512) {
    const std::size_t end = std::min(row.size(), begin + 512);
    const RowFormat format{as, static_cast<std::uint32_t>(end - begin)};
    std::vector<std::byte> piece(format.stride());
    encode_rows(format, std::span(row).subspan(begin, end - begin), piece);
    std::copy_n(piece.begin(), format.bytes(),
                result.begin() + static_cast<std::ptrdiff_t>(begin * bytes / row.size()));
  }
  return result;
}

// Random tables, lookups and a batch; and what has to come out.
class Case {
 public:
  explicit Case(std::uint64_t seed) : random_(seed) {
    const std::size_t table_count = 1 + below(random_, 3);
    for (std::size_t i = 0; i < table_count; ++i) tables_.push_back(random_table(random_));
    batch_.version = static_cast<std::uint32_t>(1 + below(random_, kVersions));
    batch_.rows = static_cast<std::int64_t>(one_in(random_, 3) ? 1 : 1 + below(random_, 40));
    batch_.users = static_cast<std::int64_t>(1 + below(random_, 3));
    for (std::int64_t row = 0; row < batch_.rows; ++row) {
      users_.push_back(
          static_cast<std::int64_t>(below(random_, static_cast<std::size_t>(batch_.users))));
    }
    if (batch_.users > 1 || one_in(random_, 2)) batch_.user_index = users_.data();
    buffers_ = {{OutputType::kF32, Side::kRow, 0},
                {OutputType::kF16, Side::kRow, 0},
                {OutputType::kF32, Side::kUser, 0},
                {OutputType::kF16, Side::kUser, 0}};
    const std::size_t lookups = 1 + below(random_, 8);
    for (std::size_t i = 0; i < lookups; ++i) add_lookup(i);
    for (std::size_t b = 0; b < buffers_.size(); ++b) {
      buffers_[b].columns += below(random_, 3);
      strides_.push_back(static_cast<std::int64_t>(buffers_[b].columns + below(random_, 3)));
    }
    for (std::size_t i = 0; i < lookups; ++i) write_expected(i);
  }

  void check(std::string_view isa) {
    const LookupPlan plan(generation(), specs_, buffers_, isa);
    std::vector<std::vector<std::byte>> outputs = blank();
    LookupArguments arguments;
    for (const Packed& packed : packed_) arguments.features.push_back(packed.input);
    for (std::size_t b = 0; b < buffers_.size(); ++b) {
      arguments.outputs.push_back({outputs[b].data(), strides_[b]});
    }
    std::vector<std::uint64_t> keys(specs_.size(), 100);
    std::vector<std::uint64_t> misses(specs_.size(), 1000);
    arguments.keys = keys.data();
    arguments.misses = misses.data();

    plan.run(arguments, batch_);

    CHECK_EQ(plan.isa(), isa);
    for (std::size_t b = 0; b < buffers_.size(); ++b) CHECK(outputs[b] == expected_[b]);
    for (std::size_t i = 0; i < specs_.size(); ++i) {
      CHECK_EQ(keys[i], 100 + keys_[i]);
      CHECK_EQ(misses[i], 1000 + misses_[i]);
    }
  }

 private:
  std::shared_ptr<const Generation> generation() const {
    std::vector<TableView> views;
    for (const MemoryTable& table : tables_) views.push_back(table.view());
    return std::make_shared<MemoryGeneration>(std::move(views));
  }

  std::size_t width(const LookupSpec& spec) const {
    const std::size_t dim = tables_[spec.table].format().dim;
    return spec.combiner == Combiner::kNone ? dim * spec.max_length : dim;
  }

  std::int64_t rows_of(Side side) const { return side == Side::kRow ? batch_.rows : batch_.users; }

  void add_lookup(std::size_t number) {
    LookupSpec spec = random_spec(random_, tables_, number);
    spec.buffer = below(random_, spec.side == Side::kUser ? 4 : 2);
    BufferSpec& buffer = buffers_[spec.buffer];
    spec.column = buffer.columns + (one_in(random_, 2) ? 0 : below(random_, 3));
    buffer.columns = spec.column + width(spec);
    samples_.push_back(random_sample(random_, spec, tables_[spec.table], rows_of(spec.side)));
    packed_.push_back(pack(random_, spec, samples_.back()));
    specs_.push_back(std::move(spec));
  }

  static std::size_t element(const BufferSpec& buffer) {
    return buffer.type == OutputType::kF32 ? 4 : 2;
  }

  // Outputs before a run, full of a pattern.
  std::vector<std::vector<std::byte>> blank() const {
    std::vector<std::vector<std::byte>> outputs;
    for (std::size_t b = 0; b < buffers_.size(); ++b) {
      const auto elements = static_cast<std::size_t>(rows_of(buffers_[b].side) * strides_[b]);
      outputs.emplace_back(std::max<std::size_t>(elements * element(buffers_[b]), 1),
                           std::byte{0xA5});
    }
    return outputs;
  }

  void write_expected(std::size_t number) {
    if (expected_.empty()) expected_ = blank();
    const LookupSpec& spec = specs_[number];
    const BufferSpec& buffer = buffers_[spec.buffer];
    Reference reference(spec, tables_[spec.table], batch_.version);
    std::vector<std::vector<std::byte>> rows;
    for (std::size_t i = 0; i < samples_[number].ids.size(); ++i) {
      rows.push_back(rounded(
          buffer.type, reference.look_up(samples_[number].ids[i], samples_[number].weights[i])));
    }
    keys_.push_back(reference.keys);
    misses_.push_back(reference.misses);
    for (std::int64_t row = 0; row < rows_of(buffer.side); ++row) {
      const bool broadcast = spec.side == Side::kUser && buffer.side == Side::kRow;
      const std::int64_t user =
          broadcast && batch_.user_index != nullptr ? users_[static_cast<std::size_t>(row)] : 0;
      const auto& bytes = rows[static_cast<std::size_t>(broadcast ? user : row)];
      const std::size_t at = static_cast<std::size_t>(row * strides_[spec.buffer]) + spec.column;
      std::copy(bytes.begin(), bytes.end(),
                expected_[spec.buffer].begin() + static_cast<std::ptrdiff_t>(at * element(buffer)));
    }
  }

  Random random_;
  std::vector<MemoryTable> tables_;
  std::vector<std::int64_t> users_;
  Batch batch_{};
  std::vector<LookupSpec> specs_;
  std::vector<BufferSpec> buffers_;
  std::vector<std::int64_t> strides_;
  std::vector<Sample> samples_;
  std::vector<Packed> packed_;
  std::vector<std::vector<std::byte>> expected_;
  std::vector<std::uint64_t> keys_;
  std::vector<std::uint64_t> misses_;
};

}  // namespace

TEST(every_instruction_set_gives_the_bits_of_the_reference) {
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    Case test(seed);
    for (const std::string_view isa : LookupPlan::instruction_sets()) {
      const int before = anabranch::testing::failures;
      test.check(isa);
      if (anabranch::testing::failures != before) {
        std::fprintf(stderr, "  seed %llu, %s\n", static_cast<unsigned long long>(seed),
                     std::string(isa).c_str());
      }
    }
  }
}

int main() { return anabranch::testing::run_tests(); }
