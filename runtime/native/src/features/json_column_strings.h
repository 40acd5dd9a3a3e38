// Strings of JSON text: where they end, and what they say.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace anabranch::features {

// What stands between two quotes.
struct JsonString {
  std::string_view text;  // as written
  bool has_escapes = false;
};

// Where a string ends early, or what is no string.
struct JsonStringFault {
  const char* at;
  const char* expected;
};

// Reads the string whose opening quote is at `at`; leaves `at` behind its closing quote. Its
// characters are UTF-8, none is a control character, and escapes are of JSON's grammar with
// surrogates in pairs. A fault leaves `at` as it was.
std::optional<JsonStringFault> take_json_string(const char*& at, const char* end,
                                                JsonString& string) noexcept;

// The characters that escapes stand for, in place of them. The string was read before.
std::string unescaped(std::string_view text);

}  // namespace anabranch::features
