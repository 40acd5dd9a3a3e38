// Is text UTF-8? Unicode 15, table 3-7: neither overlong forms nor surrogates.
#pragma once

#include <cstddef>
#include <string_view>

namespace anabranch::features {

// Bytes of the well-formed character at the start of `text`, which is not empty; 0 for none.
std::size_t utf8_length(std::string_view text) noexcept;

bool is_ascii(std::string_view text) noexcept;
bool is_utf8(std::string_view text) noexcept;

}  // namespace anabranch::features
