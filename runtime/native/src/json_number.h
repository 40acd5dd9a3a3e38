// JSON's grammar of numbers, and the value of any number in it, however long.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace anabranch::json_detail {

// The parts of a number in JSON's grammar; `length` 0 where there is none.
struct NumberToken {
  std::size_t length = 0;
  bool negative = false;
  bool whole = true;          // neither fraction nor exponent
  bool leading_zero = false;  // the one fault that deserves its own words
};

// The number at the start of `text`.
NumberToken measure_number(std::string_view text) noexcept;

// Reads all of `number`, which was measured, as the nearest value; -0 is 0 for integers. False:
// it is beyond what T holds. Underflow is none: 1e-99 as a float is 0.
template <class T>
bool number_value(std::string_view number, T& value) noexcept;

}  // namespace anabranch::json_detail
