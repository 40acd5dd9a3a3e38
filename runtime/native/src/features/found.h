// What was found, for messages: its beginning, as printable ASCII.
#pragma once

#include <string>
#include <string_view>

namespace anabranch::features {

// At most 32 bytes, then dots.
std::string shortened(std::string_view text);

// The same in quotes.
std::string quoted(std::string_view text);

}  // namespace anabranch::features
