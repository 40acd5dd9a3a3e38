#include "anabranch/features/message_column.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "found.h"
#include "message_column_fields.h"
#include "message_column_wire.h"
#include "utf8.h"

namespace anabranch::features {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are taken as they are sent");

using Problem = std::optional<std::string>;

// `bytes` as numbers: a view of them, or where they are not aligned of a copy in `storage`.
// A last one that is not whole is left out.
template <class T>
std::span<const T> numbers_of(std::string_view bytes, std::vector<T>& storage) {
  const std::size_t count = bytes.size() / sizeof(T);
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(T) == 0) {
    return {reinterpret_cast<const T*>(bytes.data()), count};
  }
  storage.resize(count);
  if (count > 0) std::memcpy(storage.data(), bytes.data(), count * sizeof(T));
  return storage;
}

std::string type_name(std::int32_t type) {
  switch (type) {
    case kNoType:
      return "TYPE_UNSPECIFIED";
    case kTypeInt64:
      return "INT64";
    case kTypeFloat32:
      return "FLOAT32";
    case kTypeString:
      return "STRING";
    default:
      return std::to_string(type);
  }
}

// A message whose fields were read; its lists of values are those of the storage.
class ColumnReader {
 public:
  ColumnReader(const ColumnForm& form, bool one_row, const ColumnLimits& limits,
               ColumnStorage& storage, std::vector<Fault>& faults)
      : form_(form), one_row_(one_row), limits_(limits), storage_(storage), faults_(faults) {}

  // Returns the column, or why all of it is at fault.
  Problem read(std::string_view bytes, RawColumn& column);

 private:
  Problem check_values();
  std::size_t take_values(RawColumn& column);
  Problem take_rows(std::size_t values, RawColumn& column);
  Problem take_lengths(std::size_t values, RawColumn& column);
  Problem take_weights(std::size_t values, RawColumn& column);
  void check_texts(RawColumn& column);
  void check_row(std::size_t row, std::size_t begin, std::size_t end);
  void drop_rows(RawColumn& column, std::span<const Fault> faults);

  const ColumnForm& form_;
  const bool one_row_;
  const ColumnLimits& limits_;
  ColumnStorage& storage_;
  std::vector<Fault>& faults_;
  ColumnFields fields_;
  bool integers_ = false;  // the values are int64s, whatever the feature's type
};

Problem ColumnReader::read(std::string_view bytes, RawColumn& column) {
  fields_ = take_column_fields(bytes, limits_, storage_);
  if (Problem problem = check_values()) return problem;
  column.type = form_.type;
  const std::size_t values = take_values(column);
  if (Problem problem = take_rows(values, column)) return problem;
  if (Problem problem = take_weights(values, column)) return problem;
  if (form_.type == ValueType::kString && !fields_.has_ascii_alone) check_texts(column);
  return std::nullopt;
}

// Are there values of the feature's type alone?
Problem ColumnReader::check_values() {
  std::string got;
  int kinds = 0;
  const auto add = [&](bool sent, const std::string& what) {
    if (!sent) return;
    if (++kinds > 1) got += " and ";
    got += what;
  };
  add(!fields_.raw.empty(), "raw");
  add(!storage_.ints.empty(), "int64s");
  add(!storage_.floats.empty(), "floats");
  add(!storage_.strings.empty(), "strings");
  if (kinds > 1) return expected_got("one of raw, int64s, floats and strings", got);

  struct Kind {
    std::int32_t type;
    const char* expected;
  };
  const auto kind = [&]() -> Kind {
    switch (form_.type) {
      case ValueType::kInt64:
        return {kTypeInt64, "int64s or raw INT64"};
      case ValueType::kFloat32:
        return {kTypeFloat32, "numbers: floats, int64s or raw"};
      case ValueType::kString:
        break;
    }
    return {kTypeString, "strings"};
  }();
  const bool numbers = form_.type != ValueType::kString;
  integers_ = !storage_.ints.empty() || (!fields_.raw.empty() && fields_.type == kTypeInt64);
  const bool as_type = numbers && integers_ && form_.type == ValueType::kFloat32;
  const std::int32_t type = as_type ? kTypeInt64 : kind.type;
  if (!fields_.raw.empty()) {
    if (!numbers || fields_.type != type) {
      return expected_got(kind.expected, "raw " + type_name(fields_.type));
    }
    const std::size_t size = integers_ ? sizeof(std::int64_t) : sizeof(float);
    if (fields_.raw.size() % size != 0) {
      return expected_got("a multiple of " + std::to_string(size) + " bytes in raw",
                          std::to_string(fields_.raw.size()));
    }
  } else if (kinds == 1) {
    const bool fits =
        numbers ? storage_.strings.empty() && (integers_ || form_.type == ValueType::kFloat32)
                : !storage_.strings.empty();
    if (!fits) return expected_got(kind.expected, got);
  }
  if (fields_.type != kNoType && fields_.type != type &&
      !(kinds == 0 && numbers && fields_.type == kTypeInt64)) {
    return expected_got("type " + type_name(type), type_name(fields_.type));
  }
  return std::nullopt;
}

// Returns how many there are.
std::size_t ColumnReader::take_values(RawColumn& column) {
  switch (form_.type) {
    case ValueType::kInt64:
      column.ints = fields_.raw.empty() ? std::span<const std::int64_t>(storage_.ints)
                                        : numbers_of(fields_.raw, storage_.ints);
      limit_values(column.ints.size(), 0, limits_);
      return column.ints.size();
    case ValueType::kFloat32:
      if (integers_) {
        const auto sent = fields_.raw.empty() ? std::span<const std::int64_t>(storage_.ints)
                                              : numbers_of(fields_.raw, storage_.ints);
        limit_values(sent.size(), 0, limits_);
        storage_.floats.resize(sent.size());
        std::transform(sent.begin(), sent.end(), storage_.floats.begin(),
                       [](std::int64_t value) { return static_cast<float>(value); });
        column.floats = storage_.floats;
        return sent.size();
      }
      column.floats = fields_.raw.empty() ? std::span<const float>(storage_.floats)
                                          : numbers_of(fields_.raw, storage_.floats);
      limit_values(column.floats.size(), 0, limits_);
      return column.floats.size();
    case ValueType::kString:
      break;
  }
  column.strings = storage_.strings;
  return storage_.strings.size();
}

Problem ColumnReader::take_rows(std::size_t values, RawColumn& column) {
  if (form_.ragged) return take_lengths(values, column);
  if (!fields_.lengths.empty()) {
    return expected_got("no lengths", counted(fields_.lengths.size(), "byte"));
  }
  if (one_row_ && values != form_.width) {
    return expected_got(counted(form_.width, "value"), std::to_string(values));
  }
  if (values % form_.width != 0) {
    return expected_got("a multiple of " + counted(form_.width, "value"), std::to_string(values));
  }
  column.rows = values / form_.width;
  if (column.rows > limits_.max_rows) {
    throw ColumnTooLarge("more than " + std::to_string(limits_.max_rows) + " rows");
  }
  return std::nullopt;
}

Problem ColumnReader::take_lengths(std::size_t values, RawColumn& column) {
  constexpr std::size_t kSize = sizeof(std::uint32_t);
  if (fields_.lengths.empty() && one_row_) {
    if (values > UINT32_MAX)
      throw ColumnTooLarge("more than " + std::to_string(UINT32_MAX) + " values");
    storage_.lengths.assign(1, static_cast<std::uint32_t>(values));
    column.lengths = storage_.lengths;
    column.rows = 1;
    return std::nullopt;
  }
  if (fields_.lengths.size() % kSize != 0) {
    return expected_got("a multiple of 4 bytes in lengths", std::to_string(fields_.lengths.size()));
  }
  column.rows = fields_.lengths.size() / kSize;
  if (column.rows > limits_.max_rows) {
    throw ColumnTooLarge("more than " + std::to_string(limits_.max_rows) + " rows");
  }
  if (one_row_ && column.rows != 1) {
    return expected_got("1 length", std::to_string(column.rows));
  }
  column.lengths = numbers_of(fields_.lengths, storage_.lengths);
  const auto sum = std::accumulate(column.lengths.begin(), column.lengths.end(), std::uint64_t{0});
  if (sum == values) return std::nullopt;
  return expected_got("lengths that add up to " + std::to_string(values), std::to_string(sum));
}

Problem ColumnReader::take_weights(std::size_t values, RawColumn& column) {
  if (fields_.weights.empty()) return std::nullopt;
  const std::string got = std::to_string(fields_.weights.size());
  if (!form_.weighted) {
    return expected_got("no weights", counted(fields_.weights.size(), "byte"));
  }
  if (fields_.weights.size() % sizeof(float) != 0) {
    return expected_got("a multiple of 4 bytes in weights", got);
  }
  column.weights = numbers_of(fields_.weights, storage_.weights);
  if (column.weights.size() == values) return std::nullopt;
  return expected_got(counted(values, "weight"), std::to_string(column.weights.size()));
}

// Rows with strings that are no text are at fault.
void ColumnReader::check_texts(RawColumn& column) {
  const std::size_t faults_before = faults_.size();
  std::size_t begin = 0;
  for (std::size_t row = 0; row < column.rows; ++row) {
    const std::size_t end = begin + (form_.ragged ? column.lengths[row] : form_.width);
    check_row(row, begin, end);
    begin = end;
  }
  if (faults_.size() > faults_before) {
    drop_rows(column, std::span<const Fault>(faults_).subspan(faults_before));
  }
}

void ColumnReader::check_row(std::size_t row, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) {
    const std::string_view text = storage_.strings[i];
    if (is_utf8(text)) continue;
    faults_.push_back({row, expected_got("UTF-8", quoted(text))});
    return;
  }
}

// Takes the values of rows at fault away, or where the form is not ragged puts empty strings in
// their place.
void ColumnReader::drop_rows(RawColumn& column, std::span<const Fault> faults) {
  std::vector<std::uint32_t> lengths(column.lengths.begin(), column.lengths.end());
  std::vector<float> weights(column.weights.begin(), column.weights.end());
  auto fault = faults.begin();
  std::size_t begin = 0;
  std::size_t kept = 0;
  for (std::size_t row = 0; row < column.rows; ++row) {
    const std::size_t count = form_.ragged ? lengths[row] : form_.width;
    const bool is_fault = fault != faults.end() && fault->row == row;
    if (is_fault) ++fault;
    for (std::size_t i = begin; i < begin + count; ++i) {
      if (is_fault && form_.ragged) continue;
      storage_.strings[kept] = is_fault ? std::string_view{} : storage_.strings[i];
      if (!weights.empty()) weights[kept] = weights[i];
      ++kept;
    }
    if (is_fault && form_.ragged) lengths[row] = 0;
    begin += count;
  }
  storage_.strings.resize(kept);
  if (!weights.empty()) weights.resize(kept);
  storage_.lengths = std::move(lengths);
  storage_.weights = std::move(weights);
  column.strings = storage_.strings;
  column.lengths = storage_.lengths;
  column.weights = storage_.weights;
}

}  // namespace

RawColumn read_message_column(std::string_view bytes, const ColumnForm& form, bool one_row,
                              const ColumnLimits& limits, ColumnStorage& storage,
                              std::vector<Fault>& faults) {
  storage.clear();
  RawColumn column;
  Problem problem;
  try {
    problem = ColumnReader(form, one_row, limits, storage, faults).read(bytes, column);
  } catch (const MalformedMessage&) {
    problem = expected_got("a serialised Column", "bytes that are none");
  }
  if (!problem) return column;
  faults.push_back({Fault::kWhole, *problem});
  storage.clear();
  return storage.view(form, 0);
}

}  // namespace anabranch::features
