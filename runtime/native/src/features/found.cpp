#include "found.h"

#include <algorithm>
#include <cstddef>

namespace anabranch::features {

std::string shortened(std::string_view text) {
  constexpr std::size_t kMost = 32;
  std::string shown(text.substr(0, kMost));
  std::replace_if(shown.begin(), shown.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text.size() > kMost ? shown + "..." : shown;
}

std::string quoted(std::string_view text) { return '"' + shortened(text) + '"'; }

}  // namespace anabranch::features
