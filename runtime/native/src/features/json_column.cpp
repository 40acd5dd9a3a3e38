#include "anabranch/features/json_column.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "found.h"
#include "json_column_cursor.h"
#include "json_column_scalars.h"
#include "json_column_values.h"

namespace anabranch::features {
namespace {

// Reads one column whose values are of T.
template <class T>
class ColumnReader {
 public:
  ColumnReader(std::string_view text, const ColumnForm& form, const ColumnLimits& limits,
               ColumnStorage& storage, std::vector<T>& values, std::vector<Fault>& faults)
      : cursor_(text, limits.max_string_bytes),
        form_(form),
        max_rows_(limits.max_rows),
        storage_(storage),
        faults_(faults),
        values_(values,
                is_scalar() ? std::min(limits.max_rows, limits.max_values) : limits.max_values,
                is_scalar() && limits.max_rows <= limits.max_values ? "rows" : "values"),
        weights_(storage.weights, limits.max_values, "weights") {}

  // Returns the number of rows.
  std::size_t read(bool one_row);

 private:
  // What became of a part of a row: nothing, or why it is at fault.
  using Problem = std::optional<std::string>;

  bool is_scalar() const { return !form_.ragged && form_.width == 1; }
  bool take_rows();
  void take_row();
  Problem take_contents();
  Problem take_vector();
  Problem take_bag(std::size_t begin);
  template <class U>
  Problem take_array(GrowingValues<U>& values, const char* expected);
  template <class U>
  Problem take_member(GrowingValues<U>& values, std::size_t begin, const U& fill,
                      const char* expected);
  void mark_missing();
  std::string got() const { return found_at(cursor_); }

  JsonCursor cursor_;
  const ColumnForm& form_;
  const std::size_t max_rows_;
  ColumnStorage& storage_;
  std::vector<Fault>& faults_;
  GrowingValues<T> values_;
  GrowingValues<float> weights_;
  bool has_weights_ = false;  // some row has
  std::size_t rows_ = 0;
};

template <class T>
std::size_t ColumnReader<T>::read(bool one_row) {
  bool has_rows = true;
  if (one_row) {
    take_row();
  } else {
    has_rows = take_rows();
  }
  cursor_.finish();
  if (has_weights_) weights_.resize(values_.count(), 1.0F);
  values_.finish();
  weights_.finish();
  if (!storage_.missing.empty()) storage_.missing.resize(rows_);
  return has_rows ? rows_ : 0;
}

// False: there is no array of them.
template <class T>
bool ColumnReader<T>::take_rows() {
  if (cursor_.peek() != '[') {
    faults_.push_back(
        {Fault::kWhole, expected_got("an array with a value for each candidate", got())});
    cursor_.skip_value();
    return false;
  }
  ++cursor_.at;
  if (cursor_.peek() == ']') {
    ++cursor_.at;
    return true;
  }
  do {
    if (is_scalar()) {
      const std::size_t before = values_.count();
      const bool is_behind = take_run(cursor_, values_, storage_.texts);
      rows_ += values_.count() - before;
      if (is_behind) continue;
    }
    take_row();
  } while (!cursor_.take_close_or_comma(']'));
  return true;
}

template <class T>
void ColumnReader<T>::take_row() {
  if (rows_ == max_rows_) {
    throw ColumnTooLarge("more than " + std::to_string(max_rows_) + " rows");
  }
  const std::size_t begin = values_.count();
  cursor_.peek();
  const char* const at = cursor_.at;
  bool is_blank = false;
  if (cursor_.left().starts_with("null")) {
    cursor_.at += 4;
    mark_missing();
    is_blank = true;
  } else if (Problem problem = take_contents()) {
    cursor_.at = at;
    cursor_.skip_value();
    faults_.push_back({rows_, std::move(*problem)});
    is_blank = true;
  }
  if (is_blank) {
    values_.resize(begin, T{});
    if (!form_.ragged) values_.resize(begin + form_.width, T{});
    if (has_weights_) weights_.resize(std::min(weights_.count(), begin), 1.0F);
  }
  if (form_.ragged) {
    storage_.lengths.push_back(static_cast<std::uint32_t>(values_.count() - begin));
  }
  ++rows_;
}

template <class T>
typename ColumnReader<T>::Problem ColumnReader<T>::take_contents() {
  if (form_.ragged) {
    return cursor_.peek() == '{' ? take_bag(values_.count())
                                 : take_array(values_, "an array of values");
  }
  if (!is_scalar()) return take_vector();
  const char* const expected = take_value(cursor_, values_, storage_.texts);
  if (expected == nullptr) return std::nullopt;
  return expected_got(expected, got());
}

template <class T>
typename ColumnReader<T>::Problem ColumnReader<T>::take_vector() {
  const std::size_t begin = values_.count();
  const std::string width = counted(form_.width, "value");
  if (cursor_.peek() != '[') return expected_got("an array of " + width, got());
  if (Problem problem = take_array(values_, "")) return problem;
  const std::size_t count = values_.count() - begin;
  if (count == form_.width) return std::nullopt;
  return expected_got(width, std::to_string(count));
}

// Reads all of an array into `values`.
template <class T>
template <class U>
typename ColumnReader<T>::Problem ColumnReader<T>::take_array(GrowingValues<U>& values,
                                                              const char* expected) {
  if (cursor_.peek() != '[') return expected_got(expected, got());
  ++cursor_.at;
  if (cursor_.peek() == ']') {
    ++cursor_.at;
    return std::nullopt;
  }
  do {
    if (take_run(cursor_, values, storage_.texts)) continue;
    if (const char* const element = take_value(cursor_, values, storage_.texts)) {
      return expected_got(element, got());
    }
  } while (!cursor_.take_close_or_comma(']'));
  return std::nullopt;
}

// Reads the array of a bag's member in place of what an earlier member of that name had, from
// `begin` on; rows before it that had none get `fill`.
template <class T>
template <class U>
typename ColumnReader<T>::Problem ColumnReader<T>::take_member(GrowingValues<U>& values,
                                                               std::size_t begin, const U& fill,
                                                               const char* expected) {
  values.resize(begin, fill);
  const char* const at = cursor_.at;
  Problem problem = take_array(values, expected);
  if (problem) {
    cursor_.at = at;
    cursor_.skip_value();
  }
  return problem;
}

// Reads {"ids": [...], "weights": [...]}; of two members of one name the last one counts. Its
// values begin at `begin`.
template <class T>
typename ColumnReader<T>::Problem ColumnReader<T>::take_bag(std::size_t begin) {
  Problem other;
  Problem ids = expected_got("\"ids\"", "an object without it");
  Problem weights;
  bool has_weights = false;
  ++cursor_.at;
  if (cursor_.peek() == '}') return ids;
  do {
    const JsonString name = cursor_.take_name();
    const std::string text = name.has_escapes ? unescaped(name.text) : std::string(name.text);
    if (text == "ids") {
      ids = take_member(values_, begin, T{}, "an array of values");
    } else if (text == "weights" && form_.weighted) {
      has_weights = has_weights_ = true;
      weights = take_member(weights_, begin, 1.0F, "an array of weights");
    } else {
      const char* const known = form_.weighted ? "\"ids\" and \"weights\"" : "\"ids\" alone";
      if (!other) other = expected_got(known, quoted(name.text));
      cursor_.skip_value();
    }
  } while (!cursor_.take_close_or_comma('}'));
  if (other) return other;
  if (ids) return ids;
  if (weights) return weights;
  const std::size_t count = values_.count() - begin;
  if (has_weights && weights_.count() - begin != count) {
    return expected_got(counted(count, "weight"), std::to_string(weights_.count() - begin));
  }
  if (has_weights_) weights_.resize(values_.count(), 1.0F);
  return std::nullopt;
}

template <class T>
void ColumnReader<T>::mark_missing() {
  storage_.missing.resize(rows_);
  storage_.missing.push_back(1);
}

template <class T>
std::size_t read_values(std::string_view text, const ColumnForm& form, bool one_row,
                        const ColumnLimits& limits, ColumnStorage& storage, std::vector<T>& values,
                        std::vector<Fault>& faults) {
  return ColumnReader<T>(text, form, limits, storage, values, faults).read(one_row);
}

}  // namespace

RawColumn read_json_column(std::string_view text, const ColumnForm& form, bool one_row,
                           const ColumnLimits& limits, ColumnStorage& storage,
                           std::vector<Fault>& faults) {
  storage.clear();
  const std::size_t faults_before = faults.size();
  std::size_t rows = 0;
  try {
    switch (form.type) {
      case ValueType::kInt64:
        rows = read_values(text, form, one_row, limits, storage, storage.ints, faults);
        break;
      case ValueType::kFloat32:
        rows = read_values(text, form, one_row, limits, storage, storage.floats, faults);
        break;
      case ValueType::kString:
        rows = read_values(text, form, one_row, limits, storage, storage.strings, faults);
        break;
    }
  } catch (const MalformedJson& malformed) {
    storage.clear();
    faults.resize(faults_before);
    faults.push_back({Fault::kWhole, malformed.what()});
  }
  return storage.view(form, rows);
}

}  // namespace anabranch::features
