#include "found.h"

#include <algorithm>

namespace anabranch::features {

std::string shortened(std::string_view text) {
  constexpr std::size_t kMost = 32;
  std::string shown(text.substr(0, kMost));
  std::replace_if(shown.begin(), shown.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text.size() > kMost ? shown + "..." : shown;
}

std::string quoted(std::string_view text) { return '"' + shortened(text) + '"'; }

std::string expected_got(const std::string& expected, const std::string& got) {
  return "expected " + expected + ", got " + got;
}

std::string counted(std::size_t count, const char* what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

}  // namespace anabranch::features
