#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "anabranch/json_numbers.h"
#include "json_datatypes.h"

namespace anabranch {
namespace {

// Fits any number: -2.2250738585072014e-308 has 24 characters, -9223372036854775808 has 20.
constexpr std::size_t kMaxToken = 32;

char* append(char* to, std::string_view word) {
  std::memcpy(to, word.data(), word.size());
  return to + word.size();
}

template <class T>
char* write_number(char* to, T value) {
  if constexpr (std::is_same_v<T, bool>) {
    return append(to, value ? "true" : "false");
  } else if constexpr (std::is_integral_v<T>) {
    return std::to_chars(to, to + kMaxToken, value).ptr;
  } else {
    if (std::isnan(value)) return append(to, "NaN");
    if (std::isinf(value)) return append(to, value > 0 ? "Infinity" : "-Infinity");
    char* const end = std::to_chars(to, to + kMaxToken, value).ptr;
    // A whole number keeps its kind for readers that tell 1 from 1.0.
    const bool marked =
        std::string_view(to, static_cast<std::size_t>(end - to)).find_first_of(".e") !=
        std::string_view::npos;
    return marked ? end : append(end, ".0");
  }
}

template <class T>
std::string dump_as(std::span<const std::byte> values) {
  const std::size_t count = values.size() / sizeof(T);
  std::string text(2, '[');
  std::size_t used = 1;
  for (std::size_t i = 0; i < count; ++i) {
    if (text.size() - used < kMaxToken + 2) text.resize(2 * text.size() + kMaxToken + 2);
    T value;
    std::memcpy(&value, values.data() + i * sizeof(T), sizeof(T));
    char* end = write_number(text.data() + used, value);
    *end++ = ',';
    used = static_cast<std::size_t>(end - text.data());
  }
  // The last comma, or the place behind the bracket, closes the array.
  if (count > 0) --used;
  text[used++] = ']';
  text.resize(used);
  return text;
}

}  // namespace

std::string dump_numbers(Datatype datatype, std::span<const std::byte> values) {
  return json_detail::visit_datatype(datatype, [&]<class T>(T) { return dump_as<T>(values); });
}

}  // namespace anabranch
