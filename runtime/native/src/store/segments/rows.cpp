#include "anabranch/store/rows.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "anabranch/store/errors.h"
#include "store/segments/half.h"

namespace anabranch::store {
namespace {

static_assert(std::endian::native == std::endian::little);

template <class T>
T load(const std::byte* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <class T>
void store_at(std::byte* at, T value) noexcept {
  std::memcpy(at, &value, sizeof value);
}

bool is_finite(float value) noexcept {
  return (std::bit_cast<std::uint32_t>(value) & 0x7F800000) != 0x7F800000;
}

// The smallest f16 that is not less than a number that is not negative.
std::uint16_t f16_not_below(double value) noexcept {
  const std::uint16_t nearest = f16_from_f32(static_cast<float>(value));
  return f32_from_f16(nearest) < value ? static_cast<std::uint16_t>(nearest + 1) : nearest;
}

// To the nearest integer, ties to even: behind 1.5 * 2^52 a double has no room for fractions, and
// its lowest bits are the integer in two's complement.
std::int8_t nearest_int8(double value) noexcept {
  const double shifted = std::clamp(value, -128.0, 127.0) + 0x1.8p52;
  return static_cast<std::int8_t>(std::bit_cast<std::uint64_t>(shifted) & 0xFF);
}

[[noreturn]] void refuse(std::uint64_t position, const std::string& why) {
  throw Refused("row " + std::to_string(position) + ": " + why);
}

void encode_int8(const float* values, std::uint32_t dim, std::uint64_t position, std::byte* row) {
  float low = values[0];
  float high = values[0];
  bool finite = true;
  for (std::uint32_t i = 0; i < dim; ++i) {
    low = std::min(low, values[i]);
    high = std::max(high, values[i]);
    finite &= is_finite(values[i]);
  }
  if (!finite) refuse(position, "int8 rows hold finite numbers only");

  const double width = (static_cast<double>(high) - low) / 255;
  const double middle = (static_cast<double>(high) + low) / 2 + width / 2;
  const std::uint16_t bias_bits = f16_from_f32(static_cast<float>(middle));
  const double bias = f32_from_f16(bias_bits);
  const std::uint16_t scale_bits = f16_not_below(std::max((high - bias) / 127, (bias - low) / 128));
  const double scale = f32_from_f16(scale_bits);
  if (!is_finite(static_cast<float>(bias)) || !is_finite(static_cast<float>(scale))) {
    refuse(position, "numbers from " + std::to_string(low) + " to " + std::to_string(high) +
                         " do not fit an int8 row, whose scale and bias are f16");
  }
  store_at(row, scale_bits);
  store_at(row + 2, bias_bits);
  const double steps_per_unit = scale == 0 ? 0 : 1 / scale;
  for (std::uint32_t i = 0; i < dim; ++i) {
    const std::int8_t q = nearest_int8((values[i] - bias) * steps_per_unit);
    store_at(row + RowFormat::kInt8Header + i, q);
  }
}

}  // namespace

void encode_rows(RowFormat format, std::span<const float> values, std::span<std::byte> rows,
                 std::uint64_t first) {
  const std::size_t stride = format.stride();
  const std::size_t count = rows.size() / stride;
  if (rows.size() % stride != 0 || values.size() != count * format.dim) {
    throw std::invalid_argument(std::to_string(values.size()) + " numbers are not " +
                                std::to_string(count) + " rows of " + std::to_string(format.dim));
  }
  const float* from = values.data();
  std::byte* row = rows.data();
  for (std::size_t i = 0; i < count; ++i, from += format.dim, row += stride) {
    switch (format.type) {
      case RowType::kF32:
        std::memcpy(row, from, format.bytes());
        break;
      case RowType::kF16:
        f16_from_f32(from, format.dim, row);
        break;
      case RowType::kBf16:
        for (std::uint32_t j = 0; j < format.dim; ++j) {
          store_at(row + 2 * j, bf16_from_f32(from[j]));
        }
        break;
      case RowType::kInt8:
        encode_int8(from, format.dim, first + i, row);
        break;
    }
    std::memset(row + format.bytes(), 0, stride - format.bytes());
  }
}

void decode_row(RowFormat format, const std::byte* row, float* values) noexcept {
  switch (format.type) {
    case RowType::kF32:
      std::memcpy(values, row, format.bytes());
      break;
    case RowType::kF16:
      f32_from_f16(row, format.dim, values);
      break;
    case RowType::kBf16:
      for (std::uint32_t i = 0; i < format.dim; ++i) {
        values[i] = f32_from_bf16(load<std::uint16_t>(row + 2 * i));
      }
      break;
    case RowType::kInt8: {
      const float scale = f32_from_f16(load<std::uint16_t>(row));
      const float bias = f32_from_f16(load<std::uint16_t>(row + 2));
      for (std::uint32_t i = 0; i < format.dim; ++i) {
        // The product is exact in f32, so fusing it with the sum changes nothing.
        values[i] = scale * load<std::int8_t>(row + RowFormat::kInt8Header + i) + bias;
      }
      break;
    }
  }
}

bool all_finite(RowFormat format, std::span<const std::byte> rows) noexcept {
  const std::size_t stride = format.stride();
  bool finite = true;
  for (std::size_t at = 0; at + stride <= rows.size() && finite; at += stride) {
    const std::byte* row = rows.data() + at;
    if (format.type == RowType::kF32) {
      for (std::uint32_t i = 0; i < format.dim; ++i) finite &= is_finite(load<float>(row + 4 * i));
      continue;
    }
    // Of int8 rows scale and bias are looked at: f16 numbers that are finite, no matter which q,
    // give a finite f32.
    const std::uint32_t exponent = format.type == RowType::kBf16 ? 0x7F80 : 0x7C00;
    const std::uint32_t count = format.type == RowType::kInt8 ? 2 : format.dim;
    for (std::uint32_t i = 0; i < count; ++i) {
      finite &= (load<std::uint16_t>(row + 2 * i) & exponent) != exponent;
    }
  }
  return finite;
}

}  // namespace anabranch::store
