// One feature in arrays that were read already, such as the columns of an item table.
//
// Thread-safety: any thread, one storage each.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "anabranch/features/raw_column.h"

namespace anabranch::features {

// Arrays of one feature. Strings lie one after another in `bytes`, which were checked to be UTF-8;
// `offsets` says where each begins, and where the last one ends.
struct ArrayParts {
  ValueType type;
  std::span<const std::int64_t> ints;
  std::span<const float> floats;
  std::string_view bytes;
  std::span<const std::int64_t> offsets;
  bool ragged = false;  // `lengths` are given
  std::span<const std::uint32_t> lengths;
  std::span<const float> weights;         // empty: none
  std::span<const std::uint8_t> missing;  // empty: none
};

// A view of `parts` as a column of `form`; `storage` holds views of its strings. Rows are as many
// as lengths, or where it is not ragged as many as fit. Rows that are missing have no values where
// the form is ragged; what values they have else does not matter.
// Throws std::invalid_argument where the arrays do not make up such a column, and ColumnTooLarge.
RawColumn read_array_column(const ArrayParts& parts, const ColumnForm& form,
                            const ColumnLimits& limits, ColumnStorage& storage);

}  // namespace anabranch::features
