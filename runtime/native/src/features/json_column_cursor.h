// A place in JSON text, and the steps that hold for any value there.
#pragma once

#include <cstddef>
#include <exception>
#include <string>
#include <string_view>

#include "json_column_strings.h"

namespace anabranch::features {

// Text that is not JSON. `problem` names the byte, what was expected there and what was found.
class MalformedJson : public std::exception {
 public:
  explicit MalformedJson(std::string problem) : problem_(std::move(problem)) {}
  const char* what() const noexcept override { return problem_.c_str(); }

 private:
  std::string problem_;
};

// JSON as RFC 8259 has it, and the bare tokens NaN, Infinity and -Infinity. All but `peek` throw
// MalformedJson.
class JsonCursor {
 public:
  // Arrays and objects inside each other that are walked over.
  static constexpr int kMaxDepth = 64;

  JsonCursor(std::string_view text, std::size_t max_string_bytes)
      : at(text.data()), end(text.data() + text.size()), begin_(at), max_(max_string_bytes) {}

  std::string_view left() const noexcept { return {at, static_cast<std::size_t>(end - at)}; }

  // The next byte that is no white space; 0 at the end of the text, as no token starts with 0.
  char peek() noexcept {
    while (at != end && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t')) ++at;
    return at != end ? *at : '\0';
  }

  // Steps behind `close` (true) or a comma (false); `close` is ']' or '}'.
  bool take_close_or_comma(char close);
  // The string whose opening quote is at `at`. Throws ColumnTooLarge.
  JsonString take_string();
  // The name of a member, its colon, and the space around.
  JsonString take_name();
  // The number at `at`: its text.
  std::string_view take_number();
  // Any value; without recursion.
  void skip_value();
  // Checks that nothing but space is left.
  void finish();

  [[noreturn]] void refuse(const char* expected) const;

  const char* at;
  const char* const end;

 private:
  void skip_scalar();
  void take_word(std::string_view word);

  const char* const begin_;
  const std::size_t max_;
};

}  // namespace anabranch::features
