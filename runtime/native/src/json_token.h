// One element of a number array, read with care: any well-formed token, any length, exact errors.
//
// The array parser reads common numbers by itself (json_decimal.h) and comes here for the rest.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "anabranch/json_numbers.h"

namespace anabranch::json_detail {

// The start of `text` as printable ASCII in quotes, or "the end of the text".
std::string excerpt(std::string_view text);

// Reads the element at the start of `text` into `value` and returns its length in bytes.
// Throws JsonError naming `index` and `offset`, the byte that `text` starts at.
template <class T>
std::size_t read_token(std::string_view text, std::size_t index, std::size_t offset, T& value);

}  // namespace anabranch::json_detail
