// Common numbers, read many digits at a time; whatever is not common is left to json_token.h.
//
// All functions load whole words: those that take `at` alone may read kReach bytes from there.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

namespace anabranch::json_detail {

// Space, sign, two runs of digits (each read by words of eight until it is known to be too long),
// point, exponent, and what follows.
inline constexpr std::ptrdiff_t kReach = 96;

inline constexpr std::ptrdiff_t kMaxDigits = 19;  // fit a uint64, whatever they are

inline constexpr std::uint64_t kPowers[] = {1,      10,      100,      1000,     10000,
                                            100000, 1000000, 10000000, 100000000};

// 10^0 to 10^22 are exact in double: 5^22 has 52 bits.
inline constexpr double kExactPowers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                          1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                          1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
inline constexpr int kMaxPower = 22;

static_assert(std::endian::native == std::endian::little, "the first digit is the lowest byte");

// Reads the digits at `at`, up to eight of them, behind those already in `value`.
// Returns how many there were.
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
  } while (count == 8 && at < limit);
  return at;
}

// digits * 10^power
struct Decimal {
  std::uint64_t digits;
  int power;
};

// Is the integer part missing, or does it have a leading zero?
inline bool is_malformed(const char* at, std::ptrdiff_t integer_digits) noexcept {
  return integer_digits == 0 || (integer_digits > 1 && *at == '0');
}

// Are these more digits than a Decimal holds? A zero before the point takes no room.
inline bool is_too_long(const char* at, std::ptrdiff_t digits) noexcept {
  return digits - (*at == '0' ? 1 : 0) > kMaxDigits;
}

// Reads a decimal without sign and exponent; returns where it ends, or null.
struct PortableDecimals {
  static const char* take(const char* at, Decimal& decimal) noexcept {
    decimal = {0, 0};
    const char* end = take_run(at, decimal.digits);
    std::ptrdiff_t digits = end - at;
    if (is_malformed(at, digits)) return nullptr;
    if (*end == '.') {
      const char* const fraction = end + 1;
      end = take_run(fraction, decimal.digits);
      if (end == fraction) return nullptr;
      digits += end - fraction;
      decimal.power = static_cast<int>(fraction - end);
    }
    return is_too_long(at, digits) ? nullptr : end;
  }
};

// The decimal as a double with at most two roundings; false where powers of ten are not exact.
inline bool scale_roughly(const Decimal& decimal, double& number) noexcept {
  const auto [digits, power] = decimal;
  if (digits >> 63 != 0 || power < -kMaxPower || power > kMaxPower) return false;
  const auto whole = static_cast<double>(static_cast<std::int64_t>(digits));  // signed is cheaper
  number = power < 0 ? whole / kExactPowers[-power] : whole * kExactPowers[power];
  return true;
}

// The nearest double, where both operands are exact, so that IEEE arithmetic rounds once
// (W. Clinger, "How to Read Floating Point Numbers Accurately", PLDI 1990, section 2).
inline bool scale(const Decimal& decimal, double& number) noexcept {
  return decimal.digits <= std::uint64_t{1} << 53 && scale_roughly(decimal, number);
}

// The nearest float. The rough double is within two units of its last place. To round it once more
// is right unless the middle of two floats lies so close: it ends in a one and 28 zeros, as all
// numbers here are of a size where floats are normal.
inline bool scale(const Decimal& decimal, float& number) noexcept {
  constexpr std::uint64_t kTail = (std::uint64_t{1} << 29) - 1;
  constexpr std::uint64_t kMiddle = std::uint64_t{1} << 28;
  constexpr std::uint64_t kMargin = 4;
  double rough;
  if (!scale_roughly(decimal, rough)) return false;
  const std::uint64_t tail = std::bit_cast<std::uint64_t>(rough) & kTail;
  if (tail - (kMiddle - kMargin) <= 2 * kMargin) return false;
  if (rough > std::numeric_limits<float>::max()) return false;
  number = static_cast<float>(rough);
  return true;
}

// Reads the exponent at `at`, behind its letter, into the decimal.
inline const char* take_exponent(const char* at, Decimal& decimal) noexcept {
  const bool negative = *at == '-';
  if (negative || *at == '+') ++at;
  std::uint64_t exponent = 0;
  const int count = take_digits(at, exponent);
  if (count == 0 || count == 8) return nullptr;
  decimal.power += negative ? -static_cast<int>(exponent) : static_cast<int>(exponent);
  return at + count;
}

inline bool is_exponent(char c) noexcept { return (c | 0x20) == 'e'; }

// Reads one number; returns where it ends, or null.
template <class Decimals, std::integral T>
[[gnu::always_inline]] inline const char* take_number(const char* at, T& number) noexcept {
  const bool negative = *at == '-';
  const char* const begin = at + negative;
  std::uint64_t magnitude = 0;
  at = take_run(begin, magnitude);
  if (is_malformed(begin, at - begin) || at - begin > kMaxDigits) return nullptr;
  if (*at == '.' || is_exponent(*at) || magnitude >> 63 != 0) return nullptr;
  const auto value = static_cast<std::int64_t>(magnitude) * (negative ? -1 : 1);
  number = static_cast<T>(value);
  return std::in_range<T>(value) ? at : nullptr;
}

template <class Decimals, std::floating_point T>
[[gnu::always_inline]] inline const char* take_number(const char* at, T& number) noexcept {
  const bool negative = *at == '-';
  Decimal decimal;
  at = Decimals::take(at + negative, decimal);
  if (at != nullptr && is_exponent(*at)) at = take_exponent(at + 1, decimal);
  if (at == nullptr || !scale(decimal, number)) return nullptr;
  if (negative) number = -number;
  return at;
}

// Where a run of numbers ended: behind one of them, or in front of something else.
template <class T>
struct RunEnd {
  const char* at;
  T* next;
  bool behind_number;
};

// Reads common numbers into [next, last), as long as they follow each other with a comma and at
// most one space.
template <class Decimals, class T>
[[gnu::always_inline]] inline RunEnd<T> take_numbers(const char* at, const char* end, T* next,
                                                     T* last) noexcept {
  while (next != last && end - at >= kReach) {
    if (*at == ' ') ++at;
    const char* const behind = take_number<Decimals>(at, *next);
    if (behind == nullptr) break;
    ++next;
    if (*behind != ',') return {behind, next, true};
    at = behind + 1;
  }
  return {at, next, false};
}

}  // namespace anabranch::json_detail
