#include "json_column_cursor.h"

#include <array>
#include <cstdint>

#include "anabranch/features/raw_column.h"
#include "json_number.h"
#include "json_token.h"

namespace anabranch::features {

void JsonCursor::refuse(const char* expected) const {
  throw MalformedJson("expected " + std::string(expected) + " at byte " +
                      std::to_string(at - begin_) + ", got " + json_detail::excerpt(left()));
}

bool JsonCursor::take_close_or_comma(char close) {
  const char next = peek();
  if (next != close && next != ',') refuse(close == ']' ? "',' or ']'" : "',' or '}'");
  ++at;
  return next == close;
}

JsonString JsonCursor::take_string() {
  JsonString string;
  if (const auto fault = take_json_string(at, end, string)) {
    at = fault->at;
    refuse(fault->expected);
  }
  if (string.text.size() > max_) {
    throw ColumnTooLarge("a string of more than " + std::to_string(max_) + " bytes");
  }
  return string;
}

JsonString JsonCursor::take_name() {
  if (peek() != '"') refuse("a name in quotes");
  const JsonString name = take_string();
  if (peek() != ':') refuse("':'");
  ++at;
  peek();
  return name;
}

std::string_view JsonCursor::take_number() {
  const std::string_view text = left();
  const char* const number = at;
  if (text.starts_with("NaN") || text.starts_with("Infinity") || text.starts_with("-Infinity")) {
    at += text[0] == 'N' ? 3 : text[0] == 'I' ? 8 : 9;
  } else {
    const json_detail::NumberToken token = json_detail::measure_number(text);
    if (token.leading_zero) refuse("a number without leading zeros");
    if (token.length == 0) refuse("a value");
    at += token.length;
  }
  return {number, static_cast<std::size_t>(at - number)};
}

void JsonCursor::take_word(std::string_view word) {
  if (!left().starts_with(word)) refuse("a value");
  at += word.size();
}

void JsonCursor::skip_scalar() {
  switch (peek()) {
    case '"':
      take_string();
      break;
    case 't':
      take_word("true");
      break;
    case 'f':
      take_word("false");
      break;
    case 'n':
      take_word("null");
      break;
    default:
      take_number();
  }
}

void JsonCursor::skip_value() {
  std::array<char, kMaxDepth> closes;  // of the open arrays and objects
  std::size_t depth = 0;
  for (;;) {
    const char next = peek();
    if (next == '[' || next == '{') {
      if (depth == closes.size()) refuse("at most 64 arrays and objects inside each other");
      const char close = next == '[' ? ']' : '}';
      ++at;
      if (peek() != close) {
        closes[depth++] = close;
        if (close == '}') take_name();
        continue;
      }
      ++at;
    } else {
      skip_scalar();
    }
    while (depth > 0 && take_close_or_comma(closes[depth - 1])) --depth;
    if (depth == 0) return;
    if (closes[depth - 1] == '}') take_name();
  }
}

void JsonCursor::finish() {
  peek();
  if (at != end) refuse("nothing after the value");
}

}  // namespace anabranch::features
