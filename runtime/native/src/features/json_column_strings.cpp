#include "json_column_strings.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "utf8.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace anabranch::features {
namespace {

constexpr const char* kNeedsQuote = "a closing quote";
constexpr const char* kNeedsHex = "four hexadecimal digits";

// Neither plain ASCII, nor what ends a run of it.
bool is_plain(char c) {
  return c >= ' ' && c != '"' && c != '\\';  // bytes from 0x80 on are negative
}
static_assert(static_cast<char>(0x80) < 0, "plain char is signed");

// The first byte from `at` on that is not plain ASCII, or `end`.
const char* skip_plain(const char* at, const char* end) noexcept {
#if defined(__SSE2__)
  for (; end - at >= 16; at += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    const __m128i special =
        _mm_or_si128(_mm_cmplt_epi8(bytes, _mm_set1_epi8(' ')),  // bytes from 0x80 on are negative
                     _mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8('"')),
                                  _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\'))));
    const auto found = static_cast<unsigned>(_mm_movemask_epi8(special));
    if (found != 0) return at + std::countr_zero(found);
  }
#endif
  while (at != end && is_plain(*at)) ++at;
  return at;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// The number of the four digits at `at`; negative where there are none.
int take_hex(const char* at, const char* end) {
  if (end - at < 4) return -1;
  int value = 0;
  for (int i = 0; i < 4; ++i) {
    const int digit = hex_digit(at[i]);
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

bool is_high_surrogate(int unit) { return unit >= 0xD800 && unit <= 0xDBFF; }
bool is_low_surrogate(int unit) { return unit >= 0xDC00 && unit <= 0xDFFF; }

// Passes the escape whose backslash is at `at`.
std::optional<JsonStringFault> take_escape(const char*& at, const char* end) noexcept {
  if (end - at < 2) return JsonStringFault{end, kNeedsQuote};
  const char letter = at[1];
  if (letter != 'u') {
    if (std::string_view("\"\\/bfnrt").find(letter) == std::string_view::npos) {
      return JsonStringFault{at + 1, "an escape"};
    }
    at += 2;
    return std::nullopt;
  }
  const int unit = take_hex(at + 2, end);
  if (unit < 0) return JsonStringFault{at + 2, kNeedsHex};
  if (is_low_surrogate(unit)) return JsonStringFault{at, "a high surrogate before a low one"};
  if (!is_high_surrogate(unit)) {
    at += 6;
    return std::nullopt;
  }
  const bool paired =
      end - at >= 12 && at[6] == '\\' && at[7] == 'u' && is_low_surrogate(take_hex(at + 8, end));
  if (!paired) return JsonStringFault{at, "a low surrogate behind a high one"};
  at += 12;
  return std::nullopt;
}

void append_utf8(std::string& text, std::uint32_t point) {
  const auto tail = [point](int shift) {
    return static_cast<char>(0x80 | ((point >> shift) & 0x3F));
  };
  if (point < 0x80) {
    text += static_cast<char>(point);
  } else if (point < 0x800) {
    text += {static_cast<char>(0xC0 | point >> 6), tail(0)};
  } else if (point < 0x10000) {
    text += {static_cast<char>(0xE0 | point >> 12), tail(6), tail(0)};
  } else {
    text += {static_cast<char>(0xF0 | point >> 18), tail(12), tail(6), tail(0)};
  }
}

char short_escape(char letter) {
  switch (letter) {
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    default:
      return letter;
  }
}

}  // namespace

std::optional<JsonStringFault> take_json_string(const char*& at, const char* end,
                                                JsonString& string) noexcept {
  const char* const begin = at + 1;
  string.has_escapes = false;
  for (const char* next = skip_plain(begin, end);; next = skip_plain(next, end)) {
    if (next == end) return JsonStringFault{end, kNeedsQuote};
    if (*next == '"') {
      string.text = {begin, static_cast<std::size_t>(next - begin)};
      at = next + 1;
      return std::nullopt;
    }
    if (*next == '\\') {
      string.has_escapes = true;
      if (const auto fault = take_escape(next, end)) return fault;
    } else {
      const std::size_t length = utf8_length({next, static_cast<std::size_t>(end - next)});
      if (length < 2) return JsonStringFault{next, length == 1 ? "no control character" : "UTF-8"};
      next += length;
    }
  }
}

std::string unescaped(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t escape = std::min(text.find('\\', at), text.size());
    result.append(text, at, escape - at);
    at = escape;
    if (at == text.size()) break;
    if (text[at + 1] != 'u') {
      result += short_escape(text[at + 1]);
      at += 2;
      continue;
    }
    const char* const end = text.data() + text.size();
    auto point = static_cast<std::uint32_t>(take_hex(text.data() + at + 2, end));
    at += 6;
    if (is_high_surrogate(static_cast<int>(point))) {
      const auto low = static_cast<std::uint32_t>(take_hex(text.data() + at + 2, end));
      point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
      at += 6;
    }
    append_utf8(result, point);
  }
  return result;
}

}  // namespace anabranch::features
