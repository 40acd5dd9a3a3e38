#include "json_number.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <type_traits>

namespace anabranch::json_detail {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::size_t digits_at(std::string_view text, std::size_t at) {
  std::size_t end = at;
  while (end < text.size() && is_digit(text[end])) ++end;
  return end - at;
}

// Is `number`, which is not zero, at least 1? Tells overflow from underflow, where from_chars says
// only "out of range".
bool is_large(std::string_view number) {
  constexpr std::int64_t kFar = std::int64_t{1} << 60;  // beyond any number of digits in memory
  const std::size_t mark = std::min(number.find_first_of("eE"), number.size());
  const std::string_view digits = number.substr(0, mark);
  const auto point = static_cast<std::int64_t>(std::min(digits.find('.'), digits.size()));
  const auto first = static_cast<std::int64_t>(digits.find_first_of("123456789"));
  std::int64_t exponent = 0;
  if (mark < number.size()) {
    std::string_view power = number.substr(mark + 1);
    if (power.starts_with('+')) power.remove_prefix(1);
    exponent = power.starts_with('-') ? -kFar : kFar;  // stays when it does not even fit an int64
    std::from_chars(power.data(), power.data() + power.size(), exponent);
    exponent = std::clamp(exponent, -kFar, kFar);
  }
  return exponent + point - first > 0;
}

}  // namespace

NumberToken measure_number(std::string_view text) noexcept {
  NumberToken token;
  token.negative = text.starts_with('-');
  std::size_t at = token.negative ? 1 : 0;
  const std::size_t integer_digits = digits_at(text, at);
  if (integer_digits == 0) return token;
  if (integer_digits > 1 && text[at] == '0') {
    token.leading_zero = true;
    return token;
  }
  at += integer_digits;
  if (at < text.size() && text[at] == '.') {
    const std::size_t fraction_digits = digits_at(text, at + 1);
    if (fraction_digits == 0) return token;
    at += 1 + fraction_digits;
    token.whole = false;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    std::size_t exponent = at + 1;
    if (exponent < text.size() && (text[exponent] == '+' || text[exponent] == '-')) ++exponent;
    const std::size_t exponent_digits = digits_at(text, exponent);
    if (exponent_digits == 0) return token;
    at = exponent + exponent_digits;
    token.whole = false;
  }
  token.length = at;
  return token;
}

template <class T>
bool number_value(std::string_view number, T& value) noexcept {
  const bool negative = number.starts_with('-');
  if constexpr (std::is_integral_v<T>) {
    // from_chars knows no sign for unsigned types; -0 is 0 for them too.
    if (std::is_unsigned_v<T> && negative) {
      if (number != "-0") return false;
      number.remove_prefix(1);
    }
    return std::from_chars(number.data(), number.data() + number.size(), value).ec == std::errc{};
  } else {
    value = 0;
    const auto result = std::from_chars(number.data(), number.data() + number.size(), value);
    if (result.ec == std::errc::result_out_of_range) {
      if (is_large(number)) return false;
      value = std::copysign(T{0}, negative ? T{-1} : T{1});
    }
    return !std::isinf(value);
  }
}

template bool number_value(std::string_view, std::int8_t&) noexcept;
template bool number_value(std::string_view, std::int16_t&) noexcept;
template bool number_value(std::string_view, std::int32_t&) noexcept;
template bool number_value(std::string_view, std::int64_t&) noexcept;
template bool number_value(std::string_view, std::uint8_t&) noexcept;
template bool number_value(std::string_view, std::uint16_t&) noexcept;
template bool number_value(std::string_view, std::uint32_t&) noexcept;
template bool number_value(std::string_view, std::uint64_t&) noexcept;
template bool number_value(std::string_view, float&) noexcept;
template bool number_value(std::string_view, double&) noexcept;

}  // namespace anabranch::json_detail
