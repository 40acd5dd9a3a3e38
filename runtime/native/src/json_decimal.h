// Common decimal numbers, eight digits at a time; whatever is not common is left to json_token.h.
//
// All functions load whole words, so they may read `kReach` bytes past `at`.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

namespace anabranch::json_detail {

// Sign, two runs of digits (each read until it is known to be too long, by words of eight), point,
// exponent, and what follows.
inline constexpr std::ptrdiff_t kReach = 96;

inline constexpr int kMaxDigits = 18;  // so that the digits fit an int64 in any case

inline constexpr std::uint64_t kPowers[] = {1,      10,      100,      1000,     10000,
                                            100000, 1000000, 10000000, 100000000};

// 10^0 to 10^22 are exact in double: 5^22 has 52 bits.
inline constexpr double kExactPowers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                          1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                          1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
inline constexpr int kMaxPower = 22;

// Reads the digits at `at`, up to eight of them, behind those already in `value`.
// Returns how many there were. (The little-endian load is checked in counters_layout.h.)
inline int take_digits(const char* at, std::uint64_t& value) noexcept {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof word);
  word ^= 0x3030303030303030;  // digits become 0..9
  // The sum sets the high bit of every byte above 9; a carry can only spoil later bytes.
  const std::uint64_t others = ((word + 0x7676767676767676) | word) & 0x8080808080808080;
  const int count = others == 0 ? 8 : std::countr_zero(others) / 8;
  if (count == 0) return 0;
  word <<= 64 - 8 * count;  // the last digit to the top, zeros below the first
  word = word * 10 + (word >> 8);
  word = ((word & 0x000000FF000000FF) * 0x000F424000000064 +
          ((word >> 16) & 0x000000FF000000FF) * 0x0000271000000001) >>
         32;
  value = value * kPowers[count] + static_cast<std::uint32_t>(word);
  return count;
}

// Reads a whole run of digits; `value` is right when there are at most kMaxDigits in all.
inline const char* take_run(const char* at, std::uint64_t& value) noexcept {
  const char* const limit = at + kMaxDigits;
  int count;
  do {
    count = take_digits(at, value);
    at += count;
  } while (count == 8 && at <= limit);
  return at;
}

// The integer part of a number: null where it is missing, too long, or has a leading zero.
inline const char* take_integer_part(const char* at, std::uint64_t& value) noexcept {
  const char* const end = take_run(at, value);
  const std::ptrdiff_t digits = end - at;
  if (digits == 0 || digits > kMaxDigits || (digits > 1 && *at == '0')) return nullptr;
  return end;
}

// digits * 10^power, if it can be had exactly rounded by one division or multiplication.
inline bool scale(std::int64_t digits, int power, double& number) noexcept {
  // Both operands are exact and IEEE rounds once (W. Clinger, "How to Read Floating Point Numbers
  // Accurately", PLDI 1990, section 2).
  if (digits > std::int64_t{1} << 53 || power < -kMaxPower || power > kMaxPower) return false;
  const auto whole = static_cast<double>(digits);
  number = power < 0 ? whole / kExactPowers[-power] : whole * kExactPowers[power];
  return true;
}

inline bool scale(std::int64_t digits, int power, float& number) noexcept {
  if (power < -kMaxPower || power > kMaxPower) return false;
  // Two roundings at most, so within 2 units in the last place of the double. Rounding that once
  // more, to float, is right unless a midpoint of two floats lies so close: such a midpoint ends in
  // a one and 28 zeros. Floats of this size are normal: 1e-22 is.
  const auto whole = static_cast<double>(digits);
  const double wide = power < 0 ? whole / kExactPowers[-power] : whole * kExactPowers[power];
  constexpr std::uint64_t kTail = (std::uint64_t{1} << 29) - 1;
  constexpr std::uint64_t kMidpoint = std::uint64_t{1} << 28;
  constexpr std::uint64_t kMargin = 4;
  const std::uint64_t tail = std::bit_cast<std::uint64_t>(wide) & kTail;
  if (tail - (kMidpoint - kMargin) <= 2 * kMargin) return false;
  if (wide > std::numeric_limits<float>::max()) return false;
  number = static_cast<float>(wide);
  return true;
}

// Reads a number of the target type and returns where it ends; null leaves it to `read_token`.
template <std::integral T>
const char* take_number(const char* at, T& number) noexcept {
  const bool negative = *at == '-';
  std::uint64_t digits = 0;
  at = take_integer_part(at + negative, digits);
  if (at == nullptr || *at == '.' || (*at | 0x20) == 'e') return nullptr;
  const auto magnitude = static_cast<std::int64_t>(digits);
  const std::int64_t value = negative ? -magnitude : magnitude;
  number = static_cast<T>(value);
  return std::in_range<T>(value) ? at : nullptr;
}

template <std::floating_point T>
const char* take_number(const char* at, T& number) noexcept {
  const bool negative = *at == '-';
  std::uint64_t digits = 0;
  const char* const begin = at + negative;
  at = take_integer_part(begin, digits);
  if (at == nullptr) return nullptr;
  int power = 0;
  if (*at == '.') {
    const char* const fraction = at + 1;
    at = take_run(fraction, digits);
    if (at == fraction || at - begin > kMaxDigits + 1) return nullptr;
    power = static_cast<int>(fraction - at);
  }
  if ((*at | 0x20) == 'e') {
    ++at;
    const bool down = *at == '-';
    if (down || *at == '+') ++at;
    std::uint64_t exponent = 0;
    const int count = take_digits(at, exponent);
    if (count == 0 || count == 8) return nullptr;
    at += count;
    power += down ? -static_cast<int>(exponent) : static_cast<int>(exponent);
  }
  if (!scale(static_cast<std::int64_t>(digits), power, number)) return nullptr;
  if (negative) number = -number;
  return at;
}

}  // namespace anabranch::json_detail
