// Numbers in rows: rounding, what is not a number, the bound of int8, and where rows lie.
#include "anabranch/store/rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "anabranch/store/errors.h"
#include "check.h"
#include "store/segments/half.h"

using namespace anabranch::store;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<std::byte> encoded(RowFormat format, const std::vector<float>& values) {
  std::vector<std::byte> rows(values.size() / format.dim * format.stride(), std::byte{0xFF});
  encode_rows(format, values, rows);
  return rows;
}

std::vector<float> there_and_back(RowFormat format, const std::vector<float>& values) {
  const auto rows = encoded(format, values);
  std::vector<float> held(values.size());
  for (std::size_t i = 0; i * format.dim < values.size(); ++i) {
    decode_row(format, rows.data() + i * format.stride(), held.data() + i * format.dim);
  }
  return held;
}

float half_at(const std::vector<std::byte>& row, std::size_t offset) {
  std::uint16_t half;
  std::memcpy(&half, row.data() + offset, sizeof half);
  return f32_from_f16(half);
}

// The f16 nearest to a finite number, ties to even, found in double arithmetic.
double nearest_f16(float value) {
  int exponent = 0;
  std::frexp(value, &exponent);
  const double step = std::ldexp(1.0, std::max(exponent - 11, -24));
  const double rounded = std::nearbyint(value / step) * step;
  return std::fabs(rounded) >= 65536 ? std::copysign(kInfinity, value) : rounded;
}

}  // namespace

TEST(every_f16_comes_back) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = f32_from_f16(half);
    const bool is_nan = (half & 0x7FFF) > 0x7C00;
    CHECK_EQ(std::isnan(value), is_nan);
    CHECK_EQ(f16_from_f32(value), is_nan ? half | 0x200 : half);
  }
  CHECK_EQ(f32_from_f16(0x3C00), 1.0F);
  CHECK_EQ(f32_from_f16(0x0001), 0x1p-24F);
  CHECK_EQ(f32_from_f16(0x7BFF), 65504.0F);
  CHECK_EQ(f32_from_f16(0xFC00), -kInfinity);
}

TEST(f16_rounds_to_nearest_and_ties_to_even) {
  // Around every f16 and the middle between it and the next, of both signs.
  for (std::uint16_t half = 0; half < 0x7BFF; ++half) {
    const float low = f32_from_f16(half);
    const float middle = (low + f32_from_f16(static_cast<std::uint16_t>(half + 1))) / 2;
    for (const float center : {low, middle}) {
      for (const float value :
           {std::nextafter(center, -1.0F), center, std::nextafter(center, kInfinity)}) {
        for (const float number : {value, -value}) {
          const float got = f32_from_f16(f16_from_f32(number));
          if (got != nearest_f16(number)) CHECK_EQ(number, got);
        }
      }
    }
  }
  CHECK_EQ(f16_from_f32(65519.996F), 0x7BFF);
  CHECK_EQ(f16_from_f32(65520.0F), 0x7C00);
  CHECK_EQ(f16_from_f32(-1e30F), 0xFC00);
  CHECK_EQ(f16_from_f32(0x1p-25F), 0);
  CHECK_EQ(f16_from_f32(0x1.000002p-25F), 1);
  CHECK_EQ(f16_from_f32(-0.0F), 0x8000);
}

TEST(instructions_and_portable_code_agree_bit_by_bit) {
  std::mt19937 random(1);
  std::vector<float> values(1 << 20);
  for (float& value : values) value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
  for (const std::size_t count : {values.size(), std::size_t{0}, std::size_t{1}, std::size_t{13}}) {
    std::vector<std::byte> fast(2 * count);
    std::vector<std::byte> plain(2 * count);
    f16_from_f32(values.data(), count, fast.data());
    f16_from_f32_portable(values.data(), count, plain.data());
    CHECK(fast == plain);
  }
  std::vector<std::uint16_t> halves(0x10000);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  std::vector<float> fast(halves.size());
  std::vector<float> plain(halves.size());
  f32_from_f16(std::as_bytes(std::span(halves)).data(), halves.size(), fast.data());
  f32_from_f16_portable(std::as_bytes(std::span(halves)).data(), halves.size(), plain.data());
  CHECK(std::memcmp(fast.data(), plain.data(), 4 * fast.size()) == 0);
}

TEST(bf16_rounds_to_nearest_and_ties_to_even) {
  for (std::uint32_t upper = 0; upper < 0x7F80; ++upper) {
    const auto at = [&](std::uint32_t lower) { return std::bit_cast<float>(upper << 16 | lower); };
    CHECK_EQ(bf16_from_f32(at(0)), upper);
    CHECK_EQ(bf16_from_f32(at(0x7FFF)), upper);
    CHECK_EQ(bf16_from_f32(at(0x8000)), upper + (upper & 1));
    CHECK_EQ(bf16_from_f32(at(0x8001)), upper + 1);
    CHECK_EQ(bf16_from_f32(-at(0x8001)), 0x8000 | (upper + 1));
  }
  CHECK_EQ(bf16_from_f32(kInfinity), 0x7F80);
  CHECK_EQ(bf16_from_f32(std::numeric_limits<float>::max()), 0x7F80);
  // A signalling NaN whose payload is in the lower half only.
  CHECK_EQ(bf16_from_f32(std::bit_cast<float>(0xFF800001u)), 0xFFC0);
}

TEST(f32_is_kept_bit_by_bit) {
  const std::vector<float> values = {kNan, -kInfinity, -0.0F, 1e-45F, 3.4e38F, 0.1F};
  const auto held = there_and_back({RowType::kF32, 3}, values);
  CHECK(std::memcmp(held.data(), values.data(), 4 * values.size()) == 0);
}

TEST(int8_is_off_by_half_a_step_at_most_and_holds_both_ends) {
  std::mt19937 random(2);
  std::uniform_real_distribution<float> unit(-1, 1);
  for (int round = 0; round < 20000; ++round) {
    const RowFormat format{RowType::kInt8, 1 + static_cast<std::uint32_t>(random() % 70)};
    // Narrow and wide rows, near zero and far from it.
    const float width = std::ldexp(1.0F, static_cast<int>(random() % 44) - 20);
    const float center = unit(random) * std::ldexp(1.0F, static_cast<int>(random() % 40) - 24);
    std::vector<float> values(format.dim);
    for (float& value : values) value = center + unit(random) * width;

    std::vector<std::byte> row;
    try {
      row = encoded(format, values);
    } catch (const Refused&) {
      CHECK(width > 60000 || std::fabs(center) > 60000);
      continue;
    }
    std::vector<float> held(format.dim);
    decode_row(format, row.data(), held.data());
    const double scale = half_at(row, 0);
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    // Scale is not larger than it must be: f16 rounds it and the bias, by 2^-11 or a step of 2^-24.
    const double bias = half_at(row, 2);
    const double bias_error = std::max(std::fabs(bias) * 0x1p-11, 0x1p-25);
    const double widest = (static_cast<double>(*high) - *low) / 255 + bias_error / 127;
    CHECK(scale <= widest * (1 + 0x1p-9) + 0x1p-24);
    for (std::uint32_t i = 0; i < format.dim; ++i) {
      const double float_error = std::fabs(held[i]) * 0x1p-23;
      CHECK(std::fabs(static_cast<double>(values[i]) - held[i]) <=
            scale / 2 * (1 + 1e-9) + float_error);
    }
  }
}

TEST(int8_rows_of_one_number_are_nearly_exact) {
  const RowFormat format{RowType::kInt8, 4};
  const std::vector<float> zeros(4, 0.0F);
  CHECK(there_and_back(format, zeros) == zeros);
  const std::vector<float> exact(4, -1.5F);
  CHECK(there_and_back(format, exact) == exact);
  for (const float held : there_and_back(format, std::vector<float>(4, 0.1F))) {
    CHECK(std::fabs(held - 0.1F) < 2e-7F);
  }
}

TEST(int8_refuses_what_it_cannot_hold_and_says_where) {
  const RowFormat format{RowType::kInt8, 2};
  CHECK_THROWS(Refused, "row 1: int8 rows hold finite numbers only",
               encoded(format, {1, 2, 3, kNan}));
  CHECK_THROWS(Refused, "row 0: int8 rows hold finite", encoded(format, {-kInfinity, 2}));
  CHECK_THROWS(Refused, "row 0: numbers from 70000", encoded(format, {70000, 70001}));
  CHECK_THROWS(Refused, "do not fit an int8 row", encoded(format, {-3e38F, 3e38F}));
  std::vector<std::byte> row(format.stride());
  CHECK_THROWS(Refused, "row 17:", encode_rows(format, std::vector<float>{kNan, 1}, row, 17));
}

TEST(sizes_that_do_not_go_together_are_refused) {
  std::vector<std::byte> row(16);
  CHECK_THROWS(std::invalid_argument, "3 numbers are not 1 rows of 4",
               encode_rows({RowType::kF32, 4}, std::vector<float>(3), row));
  CHECK_THROWS(std::invalid_argument, "are not 0 rows",
               encode_rows({RowType::kF32, 3}, std::vector<float>{}, std::span(row).first(15)));
}

TEST(rows_touch_no_more_lines_than_they_must) {
  for (const RowType type : {RowType::kF32, RowType::kF16, RowType::kBf16, RowType::kInt8}) {
    for (std::uint32_t dim = 1; dim <= RowFormat::kMaxDim; ++dim) {
      const RowFormat format{type, dim};
      CHECK(format.stride() >= format.bytes());
      CHECK(format.stride() < 2 * format.bytes());
      for (std::uint64_t row = 0; row < 64; ++row) {
        const std::uint64_t begin = row * format.stride();
        const std::uint64_t lines = (begin + format.bytes() - 1) / 64 - begin / 64 + 1;
        CHECK_EQ(lines, (format.bytes() + 63) / 64);
      }
    }
  }
}

TEST(bytes_between_rows_are_zero) {
  for (const RowType type : {RowType::kF32, RowType::kF16, RowType::kBf16, RowType::kInt8}) {
    const RowFormat format{type, 35};
    const auto rows = encoded(format, std::vector<float>(70, 1.0F));
    for (std::size_t at = 0; at < rows.size(); ++at) {
      if (at % format.stride() >= format.bytes()) CHECK(rows[at] == std::byte{0});
    }
  }
}

TEST(what_is_not_finite_is_found) {
  for (const RowType type : {RowType::kF32, RowType::kF16, RowType::kBf16}) {
    for (const float bad : {kNan, kInfinity, -kInfinity}) {
      for (std::uint32_t at = 0; at < 2 * 11; ++at) {
        const RowFormat format{type, 11};
        std::vector<float> values(2 * 11, -2.0F);
        CHECK(all_finite(format, encoded(format, values)));
        values[at] = bad;
        CHECK(!all_finite(format, encoded(format, values)));
      }
    }
  }
  const RowFormat format{RowType::kInt8, 5};
  auto row = encoded(format, {1, 2, 3, 4, 5});
  CHECK(all_finite(format, row));
  row[3] = std::byte{0x7C};  // the bias
  CHECK(!all_finite(format, row));
  CHECK(all_finite(format, {}));
}

int main() { return anabranch::testing::run_tests(); }
