#include "anabranch/json_detach.h"

namespace anabranch {
namespace {

constexpr std::string_view kSpaces = " \t\n\r";

// Few in most texts, so that searching beats counting byte by byte.
std::size_t count_of(char c, std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = text.find(c); at != text.npos; at = text.find(c, at + 1)) ++count;
  return count;
}

// The array that is the value of the member whose quoted name ends at `behind_name`; empty when it
// is no array, or holds strings or objects.
//
// Behind the array of a well-formed document comes the end of its object or, after a comma, the
// name of the next member. So in front of the first quote and the first closing brace, the last
// bracket is the one that closes the array. Where that picks too much, the text is malformed, and
// so is what was picked.
std::string_view array_behind(std::string_view text, std::size_t behind_name) {
  const std::size_t colon = text.find_first_not_of(kSpaces, behind_name);
  if (colon == text.npos || text[colon] != ':') return {};
  const std::size_t begin = text.find_first_not_of(kSpaces, colon + 1);
  if (begin == text.npos || text[begin] != '[') return {};
  std::string_view array = text.substr(begin);
  array = array.substr(0, array.find('"'));
  array = array.substr(0, array.find('}'));
  array = array.substr(0, array.rfind(']') + 1);  // nothing when there is none: npos + 1
  const bool closed = count_of('[', array) == count_of(']', array);
  return closed && array.find('{') == array.npos ? array : std::string_view{};
}

}  // namespace

DetachedNumbers detach_numbers(std::string_view text, std::string_view key,
                               std::size_t max_arrays) {
  DetachedNumbers detached;
  const std::string name = '"' + std::string(key) + '"';
  std::size_t copied = 0;
  for (std::size_t at = text.find(name); at != text.npos; at = text.find(name, at)) {
    // A quote behind a backslash is part of a string that goes on.
    const bool is_name = at == 0 || text[at - 1] != '\\';
    at += name.size();
    const std::string_view array = is_name ? array_behind(text, at) : std::string_view{};
    if (array.empty()) continue;
    if (detached.arrays.size() == max_arrays) {
      throw JsonTooManyElements("more than " + std::to_string(max_arrays) +
                                " arrays of numbers under " + name);
    }
    const auto begin = static_cast<std::size_t>(array.data() - text.data());
    detached.document.append(text, copied, begin - copied);
    detached.document += '[' + std::to_string(detached.arrays.size()) + ']';
    detached.arrays.push_back(array);
    at = copied = begin + array.size();
  }
  detached.document.append(text, copied);
  return detached;
}

}  // namespace anabranch
