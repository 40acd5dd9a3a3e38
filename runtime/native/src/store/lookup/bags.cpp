// Checks lengths and offsets before anything is read by them.
#include <limits>

#include "store/lookup/kernel.h"

namespace anabranch::store::lookup {
namespace {

using Kind = Refusal::Kind;

// What is wrong with the bags, the first in order; called where something is.
template <class Entry>
Refusal first_wrong(const Feature& feature, const FeatureInput& input, const Entry* entries,
                    std::int64_t rows) noexcept {
  std::int64_t begin = 0;
  if (feature.bag == BagForm::kOffsets && entries[0] != 0) {
    return {.kind = entries[0] < 0 ? Kind::kNegative : Kind::kFirst, .value = entries[0]};
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t length = entries[row];
    if (feature.bag == BagForm::kOffsets) {
      const std::int64_t end = row + 1 < input.bag_count ? entries[row + 1] : input.id_count;
      if (end < 0) return {.kind = Kind::kNegative, .at = row + 1, .value = end};
      if (end < begin && row + 1 < input.bag_count) {
        return {.kind = Kind::kFalling, .at = row + 1, .value = end};
      }
      // The last of [n] offsets is behind the ids.
      if (end < begin) return {.kind = Kind::kBeyond, .at = row, .value = begin};
      length = end - begin;
    }
    if (length < 0) return {.kind = Kind::kNegative, .at = row, .value = length};
    if (length > input.id_count - begin) {
      std::int64_t end;
      if (__builtin_add_overflow(begin, length, &end))
        end = std::numeric_limits<std::int64_t>::max();
      return {.kind = Kind::kBeyond, .at = row, .value = end};
    }
    if (length > feature.max_length) return {.kind = Kind::kTooLong, .at = row, .value = length};
    begin += length;
  }
  return {};
}

template <class Entry>
Refusal check(const Feature& feature, const FeatureInput& input, std::int64_t rows,
              std::int64_t& ids) noexcept {
  const auto* const entries = static_cast<const Entry*>(input.bag);
  std::uint64_t wrong = 0;
  std::uint64_t end = 0;
  if (feature.bag == BagForm::kLengths) {
    // Unsigned, so that negative lengths are too long; few enough that good ones cannot overflow.
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto length = static_cast<std::uint64_t>(std::int64_t{entries[row]});
      wrong |= length > feature.max_length;
      end += length;
    }
  } else {
    wrong = entries[0] != 0;
    for (std::int64_t row = 0; row + 1 < input.bag_count; ++row) {
      const auto length = static_cast<std::uint64_t>(std::int64_t{entries[row + 1]}) -
                          static_cast<std::uint64_t>(std::int64_t{entries[row]});
      wrong |= length > feature.max_length;
    }
    end = static_cast<std::uint64_t>(
        std::int64_t{__atomic_load_n(entries + (input.bag_count - 1), __ATOMIC_RELAXED)});
    if (input.bag_count == rows) {
      const std::uint64_t length = static_cast<std::uint64_t>(input.id_count) - end;
      wrong |= length > feature.max_length;
      end = static_cast<std::uint64_t>(input.id_count);
    }
  }
  if (wrong != 0 || end > static_cast<std::uint64_t>(input.id_count)) {
    return first_wrong(feature, input, entries, rows);
  }
  ids = static_cast<std::int64_t>(end);
  return {};
}

}  // namespace

Refusal check_bags(const Feature& feature, const FeatureInput& input, std::int64_t rows,
                   std::int64_t& ids) noexcept {
  ids = 0;
  const bool fits =
      input.bag_count == rows || (feature.bag == BagForm::kOffsets && input.bag_count == rows + 1);
  if (!fits) return {.kind = Kind::kBagCount, .value = input.bag_count};
  if (input.bag_count == 0) return {};
  return feature.bag_type == IdType::kInt64 ? check<std::int64_t>(feature, input, rows, ids)
                                            : check<std::int32_t>(feature, input, rows, ids);
}

}  // namespace anabranch::store::lookup
