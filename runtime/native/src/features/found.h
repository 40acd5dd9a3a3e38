// Words of messages: what was expected, and what was found, of which the beginning is shown as
// printable ASCII.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace anabranch::features {

// At most 32 bytes, then dots.
std::string shortened(std::string_view text);

// The same in quotes.
std::string quoted(std::string_view text);

std::string expected_got(const std::string& expected, const std::string& got);

// "1 value", "2 values".
std::string counted(std::size_t count, const char* what);

}  // namespace anabranch::features
