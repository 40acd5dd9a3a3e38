// The values of one feature as they came, before any transform: what every reader makes and every
// transform takes, whatever the wire.
//
// Thread-safety: a `ColumnStorage` belongs to one thread at a time; a `RawColumn` is a view of it
// and of the bytes that were read, and lives no longer than both.
// Invariants of a column that a reader returned: exactly the span of its `type` is filled;
// `lengths` has `rows` entries that add up to the values where the form is ragged, and is empty
// where it is not, when there are `rows * width` values; `weights` is empty or has one entry for
// each value; `missing` is empty or has `rows` entries. Rows at fault or missing have no values
// where the form is ragged, else values of zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace anabranch::features {

enum class ValueType : std::uint8_t { kInt64, kFloat32, kString };

// What a reader must know of a feature.
struct ColumnForm {
  ValueType type;
  std::size_t width = 1;  // values of a row that is not ragged
  bool ragged = false;    // rows differ in their number of values
  bool weighted = false;  // a value may have a weight beside it
};

// Why a row of a feature, or all of it, cannot be used. Texts say what was expected and what was
// found, and name neither feature nor row: `expected a number, got "12"`.
struct Fault {
  static constexpr std::size_t kWhole = static_cast<std::size_t>(-1);
  std::size_t row;  // kWhole: the column has no such rows at all
  std::string text;
};

struct RawColumn {
  ValueType type = ValueType::kInt64;
  std::size_t rows = 0;
  std::span<const std::int64_t> ints;
  std::span<const float> floats;
  std::span<const std::string_view> strings;  // UTF-8 was checked
  std::span<const std::uint32_t> lengths;
  std::span<const float> weights;
  std::span<const std::uint8_t> missing;  // 1: nothing was sent for the row
};

// Memory that columns are read into, used again by the next one.
struct ColumnStorage {
  std::vector<std::int64_t> ints;
  std::vector<float> floats;
  std::vector<std::string_view> strings;
  std::deque<std::string> texts;  // strings that had escapes; views of these stay good
  std::vector<std::uint32_t> lengths;
  std::vector<float> weights;
  std::vector<std::uint8_t> missing;

  void clear();
  // A view of what is stored, for a column of `rows` rows of `form`.
  RawColumn view(const ColumnForm& form, std::size_t rows) const;
};

// What one column may cost.
struct ColumnLimits {
  std::size_t max_rows;
  std::size_t max_values;
  std::size_t max_string_bytes;
};

// A column passes a limit.
class ColumnTooLarge : public std::exception {
 public:
  explicit ColumnTooLarge(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

}  // namespace anabranch::features
