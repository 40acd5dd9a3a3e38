#include "utf8.h"

#include <cstdint>
#include <cstring>

namespace anabranch::features {
namespace {

bool is_between(char c, unsigned low, unsigned high) {
  return static_cast<unsigned char>(c) >= low && static_cast<unsigned char>(c) <= high;
}

}  // namespace

std::size_t utf8_length(std::string_view text) noexcept {
  const char first = text[0];
  if (is_between(first, 0, 0x7F)) return 1;
  const auto continues = [text](std::size_t at, unsigned low = 0x80, unsigned high = 0xBF) {
    return at < text.size() && is_between(text[at], low, high);
  };
  if (is_between(first, 0xC2, 0xDF)) return continues(1) ? 2 : 0;
  if (is_between(first, 0xE0, 0xEF)) {
    const unsigned low = first == '\xE0' ? 0xA0 : 0x80;
    const unsigned high = first == '\xED' ? 0x9F : 0xBF;
    return continues(1, low, high) && continues(2) ? 3 : 0;
  }
  if (is_between(first, 0xF0, 0xF4)) {
    const unsigned low = first == '\xF0' ? 0x90 : 0x80;
    const unsigned high = first == '\xF4' ? 0x8F : 0xBF;
    return continues(1, low, high) && continues(2) && continues(3) ? 4 : 0;
  }
  return 0;
}

bool is_ascii(std::string_view text) noexcept {
  std::uint64_t bits = 0;
  std::size_t at = 0;
  for (; text.size() - at >= sizeof bits; at += sizeof bits) {
    std::uint64_t word;
    std::memcpy(&word, text.data() + at, sizeof word);
    bits |= word;
  }
  for (; at < text.size(); ++at) bits |= static_cast<unsigned char>(text[at]);
  return (bits & 0x8080808080808080) == 0;
}

bool is_utf8(std::string_view text) noexcept {
  if (is_ascii(text)) return true;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace anabranch::features
