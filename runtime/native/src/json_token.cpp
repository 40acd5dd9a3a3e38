#include "json_token.h"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>

#include "json_datatypes.h"
#include "json_number.h"

namespace anabranch::json_detail {
namespace {

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
  const bool zero_or_one = measure_number(place.text).length == 1 && place.text[0] <= '1';
  value = place.text.starts_with("true") || (zero_or_one && place.text[0] == '1');
  if (zero_or_one) return 1;
  if (value) return 4;
  if (place.text.starts_with("false")) return 5;
  place.refuse_token("true, false, 0 or 1");
}

template <class T>
std::size_t read_integer(const Place<T>& place, T& value) {
  const NumberToken token = measure_number(place.text);
  if (token.leading_zero) place.refuse_token("a number without leading zeros");
  if (token.length == 0 || !token.whole) place.refuse_token("an integer");
  if (!number_value(place.text.substr(0, token.length), value)) place.refuse_range(token.length);
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
  const NumberToken token = measure_number(place.text);
  if (token.leading_zero) place.refuse_token("a number without leading zeros");
  if (token.length == 0) place.refuse_token("a number");
  if (!number_value(place.text.substr(0, token.length), value)) place.refuse_range(token.length);
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
