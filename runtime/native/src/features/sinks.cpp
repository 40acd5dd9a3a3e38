#include "features/sinks.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "features/number_ranges.h"
#include "store/segments/half.h"

namespace anabranch::features {
namespace {

struct Half {
  std::uint16_t bits;
};

template <class To, class From>
To converted(From value) noexcept {
  if constexpr (std::is_same_v<To, Half>) {
    return {store::f16_from_f32(static_cast<float>(value))};
  } else {
    return static_cast<To>(value);
  }
}

// Columns [column, column + width) of `rows` rows of `columns` numbers.
template <class To>
struct Cells {
  To* first;
  std::size_t rows;
  std::size_t columns;

  To* row(std::size_t index) const noexcept { return first + index * columns; }
};

template <class To, class From>
void convert(const From* values, std::size_t count, To* cells) {
  for (std::size_t i = 0; i < count; ++i) cells[i] = converted<To>(values[i]);
}

// The first row in all others.
template <class To>
void repeat(const Cells<To>& cells, std::size_t width) {
  for (std::size_t row = 1; row < cells.rows; ++row) {
    std::copy_n(cells.first, width, cells.row(row));
  }
}

template <class To, class From>
void fill_fixed(const MadeRows& made, const From* values, const Cells<To>& cells) {
  const std::size_t rows = std::min(made.rows, cells.rows);
  if (cells.columns == made.width) {
    convert(values, rows * made.width, cells.first);
  } else if (made.width == 1) {
    To* cell = cells.first;
    for (std::size_t row = 0; row < rows; ++row, cell += cells.columns) {
      *cell = converted<To>(values[row]);
    }
  } else {
    for (std::size_t row = 0; row < rows; ++row) {
      convert(values + row * made.width, made.width, cells.row(row));
    }
  }
  if (made.rows == 1) repeat(cells, made.width);
}

template <class To, class From>
void fill_padded(const MadeRows& made, const From* values, const Ragged& padded, To padding,
                 const Cells<To>& cells) {
  const std::size_t rows = std::min(made.rows, cells.rows);
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t length = made.lengths[row];
    To* target = cells.row(row);
    convert(values, length, target);
    std::fill(target + length, target + *padded.pad_to, padding);
    values += length;
  }
  if (made.rows == 1) repeat(cells, *padded.pad_to);
}

// Calls `use` with the cells of `target`, as its type has them.
template <class Use>
void with_cells(const Tensor& tensor, std::size_t column, TensorValues& target, Use&& use) {
  if (target.rows == 0) return;
  const auto cells = [&]<class To>(To* first) {
    use(Cells<To>{first + column, target.rows, tensor.columns});
  };
  std::byte* bytes = target.numbers.data();
  switch (tensor.type) {
    case NumberType::kInt32:
      return cells(reinterpret_cast<std::int32_t*>(bytes));
    case NumberType::kInt64:
      return cells(reinterpret_cast<std::int64_t*>(bytes));
    case NumberType::kFloat16:
      return cells(reinterpret_cast<Half*>(bytes));
    case NumberType::kFloat32:
      return cells(reinterpret_cast<float*>(bytes));
    case NumberType::kFloat64:
      return cells(reinterpret_cast<double*>(bytes));
    case NumberType::kString:
      break;
  }
}

void fill_strings(const MadeRows& made, const Ragged* padded, const Tensor& tensor,
                  std::size_t column, TensorValues& target) {
  if (target.rows == 0) return;
  const Cells<std::string> cells{target.strings.data() + column, target.rows, tensor.columns};
  const std::size_t rows = std::min(made.rows, cells.rows);
  const std::string_view* values = made.values.strings.data();
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t length = made.ragged ? made.lengths[row] : made.width;
    std::copy_n(values, length, cells.row(row));
    values += length;
  }
  if (made.rows == 1 && rows == 1) repeat(cells, padded ? *padded->pad_to : made.width);
}

template <class To, class From>
AlignedBuffer copied(const From* values, std::size_t count) {
  AlignedBuffer buffer = AlignedBuffer::uninitialized(count * sizeof(To));
  std::copy_n(values, count, reinterpret_cast<To*>(buffer.data()));
  return buffer;
}

}  // namespace

TensorValues allocate_tensor(const Tensor& tensor, std::size_t rows) {
  const std::size_t count = rows * tensor.columns;
  TensorValues values{rows, AlignedBuffer::uninitialized(count * bytes_of(tensor.type)), {}};
  if (tensor.type == NumberType::kString) values.strings.resize(count);
  return values;
}

void fill_values(const MadeRows& made, std::size_t key, const Ragged* padded, const Tensor& tensor,
                 std::size_t column, TensorValues& target) {
  if (tensor.type == NumberType::kString) {
    return fill_strings(made, padded, tensor, column, target);
  }
  with_cells(tensor, column, target, [&]<class To>(const Cells<To>& cells) {
    const auto fill = [&](const auto* values) {
      if (padded == nullptr) return fill_fixed(made, values, cells);
      fill_padded(made, values, *padded, converted<To>(padded->padding), cells);
    };
    if (made.form.content == MadeForm::Content::kFloats) {
      fill(made.values.floats.data());
    } else {
      fill(made.values.ids[key].data());
    }
  });
}

void fill_lengths(const MadeRows& made, const Tensor& tensor, std::size_t column,
                  TensorValues& target) {
  with_cells(tensor, column, target, [&]<class To>(const Cells<To>& cells) {
    const std::size_t rows = std::min(made.rows, cells.rows);
    for (std::size_t row = 0; row < rows; ++row) *cells.row(row) = converted<To>(made.lengths[row]);
    if (made.rows == 1) repeat(cells, 1);
  });
}

FlatKeys flat_keys(const MadeRows& made) {
  FlatKeys keys;
  keys.rows = made.rows;
  keys.values = made.count;
  for (std::size_t key = 0; key < made.form.keys; ++key) {
    keys.ids.push_back(copied<std::int64_t>(made.values.ids[key].data(), made.count));
  }
  if (made.ragged) keys.lengths = copied<std::int64_t>(made.lengths.data(), made.rows);
  if (made.form.weighted) keys.weights = copied<float>(made.values.weights.data(), made.count);
  return keys;
}

}  // namespace anabranch::features
