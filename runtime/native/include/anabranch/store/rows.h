// How the numbers of one row lie in memory, and conversion from and to f32.
//
// Row types: f32 (IEEE 754 binary32), f16 (binary16), bf16 (upper half of binary32), and int8
// row-wise: two binary16 numbers `scale` and `bias`, then `dim` signed bytes q; a number is
// scale * q + bias. Everything is little-endian. The byte layout is in docs/formats.md, "Rows".
//
// Thread-safety: pure functions.
// Invariant: with rows `stride()` bytes apart from a 64-byte boundary on, no row touches more cache
// lines than ceil(bytes() / 64).
// Units: bytes; `dim` counts numbers.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace anabranch::store {

enum class RowType : std::uint32_t { kF32 = 0, kF16 = 1, kBf16 = 2, kInt8 = 3 };

struct RowFormat {
  static constexpr std::uint32_t kMaxDim = 1024;
  static constexpr std::uint32_t kInt8Header = 4;

  RowType type;
  std::uint32_t dim;  // 1..kMaxDim

  friend bool operator==(const RowFormat&, const RowFormat&) = default;

  // Bytes that hold numbers.
  constexpr std::uint32_t bytes() const noexcept {
    switch (type) {
      case RowType::kF32:
        return 4 * dim;
      case RowType::kF16:
      case RowType::kBf16:
        return 2 * dim;
      case RowType::kInt8:
        break;
    }
    return kInt8Header + dim;
  }

  // Bytes from one row to the next: rounded up to the smallest power of two that is not less than
  // what a row has in its last cache line.
  constexpr std::uint32_t stride() const noexcept {
    const std::uint32_t grain = std::bit_ceil((bytes() - 1) % 64 + 1);
    return (bytes() + grain - 1) / grain * grain;
  }
};

// Writes `rows.size() / format.stride()` rows; the bytes between rows become zero. `values` are
// row-major [n, dim]. f16 and bf16 round to nearest, ties to even, and overflow to infinity; a NaN
// stays a NaN of the same sign, made quiet. f32 is copied bit by bit.
// int8: with m = (max + min) / 2 and w = (max - min) / 255, bias is m + w / 2 rounded to f16, and
// scale is the smallest f16 for which min and max lie in scale * -128 + bias .. scale * 127 + bias;
// q is the nearest. So every number is off by at most scale / 2, and by what f32 rounds.
// Throws Refused where a row cannot be written as int8 (numbers that are not finite, or a scale or
// bias beyond what f16 holds), naming its position, counted from `first`; and
// std::invalid_argument where the sizes do not go together.
void encode_rows(RowFormat format, std::span<const float> values, std::span<std::byte> rows,
                 std::uint64_t first = 0);

// Reads one row of `format.stride()` bytes into `format.dim` numbers.
void decode_row(RowFormat format, const std::byte* row, float* values) noexcept;

// Whether all numbers of rows in this format are finite; `rows` are `stride()` apart.
bool all_finite(RowFormat format, std::span<const std::byte> rows) noexcept;

}  // namespace anabranch::store
