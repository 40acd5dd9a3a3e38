#include "json_token.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "json_datatypes.h"

namespace anabranch::json_detail {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The parts of a number in JSON's grammar; `length` 0 where there is none.
struct NumberToken {
  std::size_t length = 0;
  bool negative = false;
  bool whole = true;          // neither fraction nor exponent
  bool leading_zero = false;  // the one fault that deserves its own words
};

std::size_t digits_at(std::string_view text, std::size_t at) {
  std::size_t end = at;
  while (end < text.size() && is_digit(text[end])) ++end;
  return end - at;
}

NumberToken measure(std::string_view text) {
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

// Where an element is and what it should be, for the messages.
template <class T>
struct Place {
  std::string_view text;
  std::size_t index;
  std::size_t offset;

  [[noreturn]] void refuse(const std::string& problem) const {
    throw JsonError("element " + std::to_string(index) + " at byte " + std::to_string(offset) +
                    ": " + problem);
  }
  [[noreturn]] void refuse_token(std::string_view expected) const {
    refuse("expected " + std::string(expected) + " for " + std::string(name_of(kDatatype<T>)) +
           ", found " + excerpt(text));
  }
  [[noreturn]] void refuse_range(std::size_t length) const {
    std::string range;
    if constexpr (std::is_integral_v<T>) {
      range = ", which holds " + std::to_string(std::numeric_limits<T>::min()) + " to " +
              std::to_string(std::numeric_limits<T>::max());
    }
    refuse(excerpt(text.substr(0, length)) + " is out of range for " +
           std::string(name_of(kDatatype<T>)) + range);
  }
};

std::size_t read_bool(const Place<bool>& place, bool& value) {
  const bool zero_or_one = measure(place.text).length == 1 && place.text[0] <= '1';
  value = place.text.starts_with("true") || (zero_or_one && place.text[0] == '1');
  if (zero_or_one) return 1;
  if (value) return 4;
  if (place.text.starts_with("false")) return 5;
  place.refuse_token("true, false, 0 or 1");
}

template <class T>
std::size_t read_integer(const Place<T>& place, T& value) {
  const NumberToken token = measure(place.text);
  if (token.leading_zero) place.refuse_token("a number without leading zeros");
  if (token.length == 0 || !token.whole) place.refuse_token("an integer");
  std::string_view digits = place.text.substr(0, token.length);
  // from_chars knows no sign for unsigned types; -0 is 0 for them too.
  if (std::is_unsigned_v<T> && token.negative) {
    if (digits != "-0") place.refuse_range(token.length);
    digits.remove_prefix(1);
  }
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (result.ec != std::errc{}) place.refuse_range(token.length);
  return token.length;
}

template <class T>
std::size_t read_float(const Place<T>& place, T& value) {
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  for (const auto& [word, meaning] :
       {std::pair{std::string_view("NaN"), std::numeric_limits<T>::quiet_NaN()},
        std::pair{std::string_view("Infinity"), kInfinity},
        std::pair{std::string_view("-Infinity"), -kInfinity}}) {
    if (!place.text.starts_with(word)) continue;
    value = meaning;
    return word.size();
  }
  const NumberToken token = measure(place.text);
  if (token.leading_zero) place.refuse_token("a number without leading zeros");
  if (token.length == 0) place.refuse_token("a number");
  const std::string_view number = place.text.substr(0, token.length);
  value = 0;
  const auto result = std::from_chars(number.data(), number.data() + number.size(), value);
  if (result.ec == std::errc::result_out_of_range) {
    if (is_large(number)) place.refuse_range(token.length);
    value = std::copysign(T{0}, token.negative ? T{-1} : T{1});
  }
  if (std::isinf(value)) place.refuse_range(token.length);
  return token.length;
}

}  // namespace

std::string excerpt(std::string_view text) {
  constexpr std::size_t kMax = 32;
  if (text.empty()) return "the end of the text";
  std::string shown = "'";
  for (std::size_t i = 0; i < std::min(text.size(), kMax); ++i) {
    const char c = text[i];
    if (c == ',' || c == ']' || c == '}') {
      if (i == 0) shown += c;
      return shown + "'";
    }
    shown += c >= ' ' && c <= '~' ? c : '?';
  }
  return shown + (text.size() > kMax ? "...'" : "'");
}

template <class T>
std::size_t read_token(std::string_view text, std::size_t index, std::size_t offset, T& value) {
  const Place<T> place{text, index, offset};
  if constexpr (std::is_same_v<T, bool>) {
    return read_bool(place, value);
  } else if constexpr (std::is_integral_v<T>) {
    return read_integer(place, value);
  } else {
    return read_float(place, value);
  }
}

template std::size_t read_token(std::string_view, std::size_t, std::size_t, bool&);
template std::size_t read_token(std::string_view, std::size_t, std::size_t, std::int8_t&);
template std::size_t read_token(std::string_view, std::size_t, std::size_t, std::int16_t&);
template std::size_t read_token(std::string_view, std::size_t, std::size_t, std::int32_t&);
template std::size_t read_token(std::string_view, std::size_t, std::size_t, std::int64_t&);
template std::size_t read_token(std::string_view, std::size_t, std::size_t, std::uint8_t&);
template std::size_t read_token(std::string_view, std::size_t, std::size_t, std::uint16_t&);
template std::size_t read_token(std::string_view, std::size_t, std::size_t, std::uint32_t&);
template std::size_t read_token(std::string_view, std::size_t, std::size_t, std::uint64_t&);
template std::size_t read_token(std::string_view, std::size_t, std::size_t, float&);
template std::size_t read_token(std::string_view, std::size_t, std::size_t, double&);

}  // namespace anabranch::json_detail
