// A lookup done plainly: one id after the other, from what a MemoryTable says it holds.
#pragma once

#include <cmath>
#include <optional>
#include <vector>

#include "anabranch/store/lookup.h"
#include "memory_table.h"

namespace anabranch::testing {

// Ids, bags and weights of one feature, in the types of its spec, and plain beside.
struct Sample {
  std::vector<std::vector<std::int64_t>> ids;  // per row, before `add`
  std::vector<std::vector<float>> weights;     // per row
};

class Reference {
 public:
  using Row = MemoryTable::Row;

  Reference(const store::LookupSpec& spec, const MemoryTable& table, std::uint32_t version)
      : spec_(spec), table_(table), version_(version) {}

  std::uint64_t keys = 0;
  std::uint64_t misses = 0;

  // What a lookup writes for one row of ids.
  Row look_up(const std::vector<std::int64_t>& ids, const std::vector<float>& weights) {
    const std::size_t dim = table_.format().dim;
    Row result(spec_.combiner == store::Combiner::kNone ? dim * spec_.max_length : dim, 0.0f);
    bool first = true;
    float total = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::optional<Row> row = row_of(ids[i]);
      if (!row) continue;
      if (spec_.combiner == store::Combiner::kNone) {
        std::copy(row->begin(), row->end(), result.begin() + static_cast<std::ptrdiff_t>(i * dim));
        continue;
      }
      const float weight = spec_.weighted ? weights[i] : 1;
      total += spec_.combiner == store::Combiner::kSqrtn ? weight * weight : weight;
      for (std::size_t d = 0; d < dim; ++d) {
        const float value = spec_.weighted ? (*row)[d] * weight : (*row)[d];
        if (first) {
          result[d] = value;
        } else if (spec_.combiner == store::Combiner::kMax) {
          result[d] = std::max(result[d], value);
        } else {
          result[d] += value;
        }
      }
      first = false;
    }
    divide(result, total);
    return result;
  }

 private:
  void divide(Row& sum, float total) const {
    const bool mean = spec_.combiner == store::Combiner::kMean;
    if (!mean && spec_.combiner != store::Combiner::kSqrtn) return;
    const float divisor = mean ? total : std::sqrt(total);
    for (float& value : sum) value = divisor == 0 ? 0 : value / divisor;
  }

  // The row for an id; none where it is padding.
  std::optional<Row> row_of(std::int64_t id) {
    std::uint64_t key = static_cast<std::uint64_t>(id) + static_cast<std::uint64_t>(spec_.add);
    if (spec_.padding_key == key) return std::nullopt;
    ++keys;
    if (spec_.missing == store::MissingPolicy::kOriginal && static_cast<std::int64_t>(key) < 0) {
      key += table_.base_rows();
    }
    if (const auto found = table_.at(key, version_)) return found;
    ++misses;
    if (spec_.missing == store::MissingPolicy::kVector) return spec_.missing_row;
    if (spec_.missing == store::MissingPolicy::kKey) {
      if (const auto found = table_.at(spec_.missing_key, version_)) return found;
    }
    return Row(table_.format().dim, 0.0f);
  }

  const store::LookupSpec& spec_;
  const MemoryTable& table_;
  std::uint32_t version_;
};

}  // namespace anabranch::testing
