#include "anabranch/json_scan.h"

#include <algorithm>
#include <random>
#include <string>

#include "check.h"

using namespace anabranch;

namespace {

constexpr JsonLimits kNone = {1000000, 1000000000, 1000000000};

// What a document has, found byte by byte. A backslash outside a string is a fault at which any
// decoder stops; what counts behind it is of no matter, but must be the same here and there.
struct Measures {
  std::size_t depth = 0;
  std::size_t elements = 0;
  std::size_t longest = 0;
};

Measures measure(std::string_view text) {
  Measures found;
  std::size_t depth = 0;
  std::size_t length = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '"') {
        in_string = false;
        found.longest = std::max(found.longest, length);
      } else if (c == '\\') {
        length += 2;
        ++i;
      } else {
        ++length;
      }
    } else if (c == '\\' && i + 1 < text.size() && (text[i + 1] == '"' || text[i + 1] == '\\')) {
      ++i;
    } else if (c == '"') {
      in_string = true;
      length = 0;
    } else if (c == '[' || c == '{') {
      found.depth = std::max(found.depth, ++depth);
      ++found.elements;
    } else if (c == ']' || c == '}') {
      if (depth > 0) --depth;
    } else if (c == ',') {
      ++found.elements;
    }
  }
  return found;
}

// A random well-formed value.
void append_value(std::string& text, std::mt19937_64& random, int depth) {
  const auto append_string = [&] {
    text += '"';
    for (auto left = random() % (random() % 10 == 0 ? 200 : 8); left > 0; --left) {
      const char* const pieces[] = {"a", "\\\"", "\\\\", "[",        "]",      "{",
                                    ",", ":",    " ",    "\xc3\xa4", "\\u0041"};
      text += pieces[random() % std::size(pieces)];
    }
    text += '"';
  };
  const auto kind = random() % (depth > 6 ? 3 : 5);
  if (kind == 0) {
    text += std::to_string(random() % 100000);
  } else if (kind == 1) {
    text += random() % 2 == 0 ? "true" : "null";
  } else if (kind == 2) {
    append_string();
  } else {
    const bool object = kind == 4;
    text += object ? '{' : '[';
    for (auto left = random() % 12; left > 0; --left) {
      if (object) {
        append_string();
        text += ':';
      }
      append_value(text, random, depth + 1);
      if (left > 1) text += random() % 2 == 0 ? "," : " , ";
    }
    text += object ? '}' : ']';
  }
}

bool passes(std::string_view text, const JsonLimits& limits) {
  try {
    scan_json(text, limits);
    return true;
  } catch (const JsonError&) {
    return false;
  }
}

}  // namespace

TEST(limits_are_exact_on_random_documents) {
  std::mt19937_64 random(19);
  for (int round = 0; round < 5000; ++round) {
    std::string text(random() % 70, ' ');
    append_value(text, random, 0);
    const Measures has = measure(text);
    CHECK(passes(text, {has.depth, has.elements, has.longest}));
    if (has.depth > 0) {
      CHECK_THROWS(JsonTooDeep, "is deeper than",
                   scan_json(text, {has.depth - 1, has.elements, has.longest}));
      CHECK_THROWS(JsonTooManyElements, "elements before byte",
                   scan_json(text, {has.depth, has.elements - 1, has.longest}));
    }
    if (has.longest > 0) {
      CHECK_THROWS(JsonStringTooLong, "has more than",
                   scan_json(text, {has.depth, has.elements, has.longest - 1}));
    }
  }
}

TEST(elements_are_values_and_members) {
  for (const auto& [text, elements] : {std::pair{"[1,2,3]", 3},
                                       {"[[1,2],[3,4]]", 6},
                                       {"{\"a\":1,\"b\":[2]}", 3},
                                       {"[]", 1},
                                       {"7", 0},
                                       {"[\"a,b\",\"[\"]", 2},
                                       {"", 0}}) {
    const auto limit = static_cast<std::size_t>(elements);
    CHECK(passes(text, {10, limit, 10}));
    CHECK(elements == 0 || !passes(text, {10, limit - 1, 10}));
  }
}

TEST(strings_hide_structure_over_any_block_boundary) {
  for (std::size_t before = 0; before < 130; ++before) {
    for (std::size_t slashes = 0; slashes < 6; ++slashes) {
      // An even number of backslashes ends the string, so the bracket behind it counts.
      const std::string text =
          "[" + std::string(before, ' ') + "\"" + std::string(slashes, '\\') + "\"[[" + "\"";
      const bool ends = slashes % 2 == 0;
      CHECK_EQ(passes(text, {2, 100, 100}), !ends);
      CHECK(passes(text, {3, 100, 100}));
    }
  }
}

TEST(messages_name_the_limit_and_the_byte) {
  CHECK_THROWS(JsonTooDeep, "nesting at byte 2 is deeper than 2", scan_json("[[[", {2, 10, 10}));
  CHECK_THROWS(JsonStringTooLong, "string at byte 2 has more than 3 bytes",
               scan_json("[\"abcd\"]", {2, 10, 3}));
  CHECK_THROWS(JsonTooManyElements, "more than 2 elements", scan_json("[1,2,3]", {2, 2, 3}));
}

TEST(a_string_that_never_ends_is_measured_too) {
  CHECK_THROWS(JsonStringTooLong, "more than 100",
               scan_json("\"" + std::string(101, 'x'), {1, 1, 100}));
  CHECK(passes("\"" + std::string(100, 'x'), {1, 1, 100}));
}

TEST(any_bytes_at_all_are_survived) {
  std::mt19937_64 random(23);
  for (int round = 0; round < 20000; ++round) {
    std::string text(random() % 300, '\0');
    for (char& c : text) {
      c = random() % 2 == 0 ? static_cast<char>(random()) : "[]{}\",\\:0 "[random() % 10];
    }
    const Measures has = measure(text);
    CHECK(passes(text, {kNone.max_depth, has.elements, text.size()}));
    if (has.elements > 0) CHECK(!passes(text, {kNone.max_depth, has.elements - 1, text.size()}));
  }
}

int main() { return anabranch::testing::run_tests(); }
