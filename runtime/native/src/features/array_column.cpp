#include "anabranch/features/array_column.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace anabranch::features {
namespace {

void expect(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}

std::size_t values_of(const ArrayParts& parts) {
  switch (parts.type) {
    case ValueType::kInt64:
      return parts.ints.size();
    case ValueType::kFloat32:
      return parts.floats.size();
    case ValueType::kString:
      break;
  }
  expect(!parts.offsets.empty(), "offsets: expected one more than there are strings");
  return parts.offsets.size() - 1;
}

// Views of all strings, in `storage`.
void cut_strings(const ArrayParts& parts, const ColumnLimits& limits, ColumnStorage& storage) {
  const auto size = static_cast<std::int64_t>(parts.bytes.size());
  std::int64_t begin = parts.offsets.front();
  expect(begin >= 0 && begin <= size, "offsets: expected some inside the bytes");
  storage.strings.reserve(parts.offsets.size() - 1);
  for (const std::int64_t end : parts.offsets.subspan(1)) {
    expect(end >= begin && end <= size, "offsets: expected rising ones inside the bytes");
    const auto length = static_cast<std::size_t>(end - begin);
    if (length > limits.max_string_bytes) {
      throw ColumnTooLarge("a string of " + std::to_string(length) + " bytes, at most " +
                           std::to_string(limits.max_string_bytes) + " allowed");
    }
    storage.strings.push_back(parts.bytes.substr(static_cast<std::size_t>(begin), length));
    begin = end;
  }
}

void expect_limit(std::size_t count, std::size_t limit, const char* what) {
  if (count <= limit) return;
  throw ColumnTooLarge(std::to_string(count) + " " + what + ", at most " + std::to_string(limit) +
                       " allowed");
}

}  // namespace

RawColumn read_array_column(const ArrayParts& parts, const ColumnForm& form,
                            const ColumnLimits& limits, ColumnStorage& storage) {
  expect(parts.type == form.type, "values: expected the type of the feature");
  expect(parts.ragged == form.ragged,
         "lengths: expected where the feature is ragged, and only there");
  const std::size_t values = values_of(parts);
  RawColumn column;
  column.type = parts.type;
  column.rows = form.ragged ? parts.lengths.size() : values / form.width;
  expect_limit(column.rows, limits.max_rows, "rows");
  expect_limit(values, limits.max_values, "values");
  if (form.ragged) {
    const auto sum = std::accumulate(parts.lengths.begin(), parts.lengths.end(), std::uint64_t{0});
    expect(sum == values, "lengths: expected a sum that is the number of values");
  } else {
    expect(column.rows * form.width == values, "values: expected whole rows");
  }
  expect(parts.weights.empty() || (form.weighted && parts.weights.size() == values),
         "weights: expected one for each value, where the feature has weights");
  expect(parts.missing.empty() || parts.missing.size() == column.rows,
         "missing: expected one for each row");
  for (std::size_t row = 0; form.ragged && row < parts.missing.size(); ++row) {
    expect(parts.missing[row] == 0 || parts.lengths[row] == 0,
           "missing: expected no values in missing rows");
  }
  storage.clear();
  if (parts.type == ValueType::kString) cut_strings(parts, limits, storage);
  column.ints = parts.ints;
  column.floats = parts.floats;
  column.strings = storage.strings;
  column.lengths = parts.lengths;
  column.weights = parts.weights;
  column.missing = parts.missing;
  return column;
}

}  // namespace anabranch::features
