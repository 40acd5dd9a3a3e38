// Columns as one line of text, for tests: `rows 2: 1 2 | lengths 2 0 | missing 0 1 | 1: why`.
#pragma once

#include <cstring>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "anabranch/features/raw_column.h"

namespace anabranch::testing {

inline constexpr features::ColumnLimits kAnything{1 << 20, 1 << 20, 1 << 20};

// Bytes in memory of exactly their size, at `misaligned` bytes beyond an aligned address, so that
// a sanitizer sees what is read behind them.
class ExactBytes {
 public:
  explicit ExactBytes(std::string_view bytes, std::size_t misaligned = 0)
      : memory_(new char[bytes.size() + misaligned]),
        view_(memory_.get() + misaligned, bytes.size()) {
    std::memcpy(memory_.get() + misaligned, bytes.data(), bytes.size());
  }
  std::string_view view() const { return view_; }

 private:
  std::unique_ptr<char[]> memory_;
  std::string_view view_;
};

template <class T>
void append(std::ostringstream& text, const char* name, const T& values) {
  if (values.empty()) return;
  text << " | " << name;
  for (const auto& value : values) text << ' ' << +value;
}

inline std::string text_of(const features::RawColumn& column,
                           const std::vector<features::Fault>& faults) {
  std::ostringstream text;
  text.precision(9);
  text << "rows " << column.rows << ':';
  for (const auto value : column.ints) text << ' ' << value;
  for (const auto value : column.floats) text << ' ' << value;
  for (const auto value : column.strings) text << " <" << value << '>';
  append(text, "lengths", column.lengths);
  append(text, "weights", column.weights);
  append(text, "missing", column.missing);
  for (const auto& fault : faults) {
    text << " | ";
    if (fault.row == features::Fault::kWhole) {
      text << "whole";
    } else {
      text << fault.row;
    }
    text << ": " << fault.text;
  }
  return text.str();
}

// What breaks the invariants of a column that a reader returned; empty for nothing.
inline std::string broken(const features::RawColumn& column, const features::ColumnForm& form,
                          const std::vector<features::Fault>& faults) {
  using features::ValueType;
  const std::size_t values = column.ints.size() + column.floats.size() + column.strings.size();
  const auto only = form.type == ValueType::kInt64     ? column.ints.size()
                    : form.type == ValueType::kFloat32 ? column.floats.size()
                                                       : column.strings.size();
  if (column.type != form.type || only != values) return "values of another type";
  if (form.ragged) {
    std::size_t sum = 0;
    for (const auto length : column.lengths) sum += length;
    if (column.lengths.size() != column.rows || sum != values) return "lengths";
  } else if (!column.lengths.empty() || values != column.rows * form.width) {
    return "rows of another width";
  }
  if (!column.weights.empty() && column.weights.size() != values) return "weights";
  if (!column.missing.empty() && column.missing.size() != column.rows) return "missing";
  const auto blank = [&](std::size_t row) {
    if (form.ragged) return column.lengths[row] == 0;
    for (std::size_t i = row * form.width; i < (row + 1) * form.width; ++i) {
      if (!column.ints.empty() && column.ints[i] != 0) return false;
      if (!column.floats.empty() && !(column.floats[i] == 0)) return false;
      if (!column.strings.empty() && !column.strings[i].empty()) return false;
    }
    return true;
  };
  for (std::size_t row = 0; row < column.missing.size(); ++row) {
    if (column.missing[row] != 0 && !blank(row)) return "a missing row has values";
  }
  for (const auto& fault : faults) {
    if (fault.row == features::Fault::kWhole) {
      if (column.rows != 0 || faults.size() != 1) return "a whole fault among others";
    } else if (fault.row >= column.rows || !blank(fault.row)) {
      return "a row at fault has values";
    }
  }
  return "";
}

}  // namespace anabranch::testing
