#include "json_column_scalars.h"

#include <cstring>
#include <limits>

#include "found.h"
#include "json_number.h"
#include "json_runs.h"

namespace anabranch::features {
namespace {

constexpr const char* kInteger = "an integer";
constexpr const char* kNumber = "a number";
constexpr const char* kString = "a string";

std::size_t bytes_left(const JsonCursor& cursor) {
  return static_cast<std::size_t>(cursor.end - cursor.at);
}

bool is_number_start(char c) { return (c >= '0' && c <= '9') || c == '-' || c == 'N' || c == 'I'; }

// All of `text` as an integer; returns nothing, or what would have been expected.
const char* integer_value(std::string_view text, std::int64_t& value) {
  const json_detail::NumberToken token = json_detail::measure_number(text);
  if (token.length == 0 || token.length != text.size() || !token.whole) return kInteger;
  return json_detail::number_value(text, value) ? nullptr : "an integer of 64 bits";
}

const char* float_value(std::string_view text, float& value) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  switch (text[text.size() - 1]) {
    case 'N':
      value = std::numeric_limits<float>::quiet_NaN();
      return nullptr;
    case 'y':
      value = text[0] == '-' ? -kInfinity : kInfinity;
      return nullptr;
    default:
      return json_detail::number_value(text, value) ? nullptr : "a number that fits float32";
  }
}

template <class T>
bool take_number_run(JsonCursor& cursor, GrowingValues<T>& values) {
  static const json_detail::TakeNumbers<T> take_numbers = json_detail::fastest_run<T>();
  constexpr std::ptrdiff_t kReach = json_detail::kReach;
  do {
    values.make_room(bytes_left(cursor));
    if (values.is_full()) return false;
    const auto run = take_numbers(cursor.at, cursor.end, values.next(), values.last());
    cursor.at = run.at;
    values.advance(run.next);
    if (run.behind_number) return true;
  } while (values.is_full());
  // Near the end whole words would be loaded from beyond it, so the rest is read from a copy.
  const std::ptrdiff_t left = cursor.end - cursor.at;
  if (left == 0 || left >= kReach) return false;
  char copy[2 * kReach] = {};
  std::memcpy(copy, cursor.at, static_cast<std::size_t>(left));
  const auto run = take_numbers(copy, copy + sizeof copy, values.next(), values.last());
  cursor.at += run.at - copy;
  values.advance(run.next);
  return run.behind_number;
}

void take_plain_string(JsonCursor& cursor, GrowingValues<std::string_view>& values,
                       std::deque<std::string>& texts) {
  const JsonString string = cursor.take_string();
  std::string_view text = string.text;
  if (string.has_escapes) text = texts.emplace_back(unescaped(text));
  values.push(text, bytes_left(cursor));
}

}  // namespace

std::string found_at(JsonCursor cursor) {
  switch (cursor.peek()) {
    case '[':
      return "an array";
    case '{':
      return "an object";
    case '"':
      return quoted(cursor.take_string().text);
    default: {
      const char* const begin = cursor.at;
      cursor.skip_value();
      return shortened({begin, static_cast<std::size_t>(cursor.at - begin)});
    }
  }
}

const char* take_value(JsonCursor& cursor, GrowingValues<std::int64_t>& values,
                       std::deque<std::string>&) {
  const char next = cursor.peek();
  const char* const begin = cursor.at;
  const char* expected = kInteger;
  std::int64_t value = 0;
  if (next == '"') {
    const JsonString string = cursor.take_string();
    expected = string.has_escapes ? integer_value(unescaped(string.text), value)
                                  : integer_value(string.text, value);
  } else if (is_number_start(next)) {
    expected = integer_value(cursor.take_number(), value);
  }
  if (expected == nullptr) {
    values.push(value, bytes_left(cursor));
  } else {
    cursor.at = begin;
  }
  return expected;
}

const char* take_value(JsonCursor& cursor, GrowingValues<float>& values, std::deque<std::string>&) {
  if (!is_number_start(cursor.peek())) return kNumber;
  const char* const begin = cursor.at;
  float value = 0;
  const char* const expected = float_value(cursor.take_number(), value);
  if (expected == nullptr) {
    values.push(value, bytes_left(cursor));
  } else {
    cursor.at = begin;
  }
  return expected;
}

const char* take_value(JsonCursor& cursor, GrowingValues<std::string_view>& values,
                       std::deque<std::string>& texts) {
  if (cursor.peek() != '"') return kString;
  take_plain_string(cursor, values, texts);
  return nullptr;
}

bool take_run(JsonCursor& cursor, GrowingValues<std::int64_t>& values, std::deque<std::string>&) {
  return take_number_run(cursor, values);
}

bool take_run(JsonCursor& cursor, GrowingValues<float>& values, std::deque<std::string>&) {
  return take_number_run(cursor, values);
}

bool take_run(JsonCursor& cursor, GrowingValues<std::string_view>& values,
              std::deque<std::string>& texts) {
  for (;;) {
    if (cursor.at != cursor.end && *cursor.at == ' ') ++cursor.at;
    if (cursor.at == cursor.end || *cursor.at != '"') return false;
    take_plain_string(cursor, values, texts);
    if (cursor.at == cursor.end || *cursor.at != ',') return true;
    ++cursor.at;
  }
}

}  // namespace anabranch::features
