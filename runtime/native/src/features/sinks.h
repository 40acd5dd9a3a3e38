// Where what a transform made goes: columns of tensors, and flat keys for lookups.
//
// Thread-safety: functions on the caller's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "anabranch/features/feature.h"
#include "anabranch/features/program.h"
#include "features/made_values.h"

namespace anabranch::features {

// Rows of what was made: `lengths` values each where it is ragged, else `width`.
struct MadeRows {
  const MadeForm& form;
  const MadeValues& values;
  std::size_t rows;
  std::size_t count;  // of all values
  std::size_t width;
  bool ragged;
  std::span<const std::uint32_t> lengths;
};

// A tensor without its values yet: `rows` rows of it.
TensorValues allocate_tensor(const Tensor& tensor, std::size_t rows);

// Writes list `key` of what was made to its columns; a ragged row is filled up to `pad_to` with
// `padding`. Where there is one row and the tensor has another number, it is repeated. Every number
// is one that the tensor holds.
void fill_values(const MadeRows& made, std::size_t key, const Ragged* padded, const Tensor& tensor,
                 std::size_t column, TensorValues& target);

// Writes how many values each row has.
void fill_lengths(const MadeRows& made, const Tensor& tensor, std::size_t column,
                  TensorValues& target);

// Copies of all keys, with lengths where it is ragged and weights where it is weighted.
FlatKeys flat_keys(const MadeRows& made);

}  // namespace anabranch::features
