// Every form of a column in JSON, its faults with their texts, and its limits.
#include "anabranch/features/json_column.h"

#include <bit>
#include <cmath>
#include <cstdlib>
#include <random>

#include "check.h"
#include "column_text.h"

using namespace anabranch::features;
using anabranch::testing::ExactBytes;
using anabranch::testing::kAnything;
using anabranch::testing::text_of;

namespace {

constexpr ColumnForm kInts{ValueType::kInt64};
constexpr ColumnForm kFloats{ValueType::kFloat32};
constexpr ColumnForm kStrings{ValueType::kString};
constexpr ColumnForm kPair{ValueType::kFloat32, 2};
constexpr ColumnForm kIds{ValueType::kInt64, 1, true};
constexpr ColumnForm kTags{ValueType::kString, 1, true, true};

enum Rows { kOne, kMany };

std::string read(std::string_view text, const ColumnForm& form, Rows rows = kMany,
                 const ColumnLimits& limits = kAnything) {
  const ExactBytes exact(text);
  ColumnStorage storage;
  std::vector<Fault> faults;
  const RawColumn column =
      read_json_column(exact.view(), form, rows == kOne, limits, storage, faults);
  const std::string broken = anabranch::testing::broken(column, form, faults);
  if (!broken.empty()) return broken;
  return text_of(column, faults);
}

}  // namespace

TEST(rows_of_one_value) {
  CHECK_EQ(read("[1, -2 ,\n3]", kInts), "rows 3: 1 -2 3");
  CHECK_EQ(read(" [ ] ", kInts), "rows 0:");
  CHECK_EQ(read("[1, 2.5, -0.125, 1e2]", kFloats), "rows 4: 1 2.5 -0.125 100");
  CHECK_EQ(read("[\"a\",\"\" , \"c d\"]", kStrings), "rows 3: <a> <> <c d>");
  CHECK_EQ(read(" 7 ", kInts, kOne), "rows 1: 7");
  CHECK_EQ(read("\"de\"", kStrings, kOne), "rows 1: <de>");
}

TEST(rows_of_some_values) {
  CHECK_EQ(read("[[1,2],[3,4]]", kPair), "rows 2: 1 2 3 4");
  CHECK_EQ(read("[1, 2]", kPair, kOne), "rows 1: 1 2");
  CHECK_EQ(read("[[1,2],[3],null,5,[1,2,3]]", kPair),
           "rows 5: 1 2 0 0 0 0 0 0 0 0 | missing 0 0 1 0 0 | 1: expected 2 values, got 1 | "
           "3: expected an array of 2 values, got 5 | 4: expected 2 values, got 3");
}

TEST(ragged_rows) {
  CHECK_EQ(read("[[1,2],[],null,[3]]", kIds), "rows 4: 1 2 3 | lengths 2 0 0 1 | missing 0 0 1 0");
  CHECK_EQ(read("[5, 9, 9]", kIds, kOne), "rows 1: 5 9 9 | lengths 3");
  CHECK_EQ(read("[{\"ids\": [1]}, [2]]", kIds), "rows 2: 1 2 | lengths 1 1");
  CHECK_EQ(read("null", kIds, kOne), "rows 1: | lengths 0 | missing 1");
}

TEST(bags_with_weights) {
  CHECK_EQ(read("[[\"a\"], {\"ids\": [\"b\", \"c\"], \"weights\": [1.5, 0.5]}, {\"ids\": []}, "
                "{\"weights\":[],\"ids\":[]}, [\"d\"]]",
                kTags),
           "rows 5: <a> <b> <c> <d> | lengths 1 2 0 0 1 | weights 1 1.5 0.5 1");
  CHECK_EQ(read("{\"weights\": [3], \"ids\": [\"x\"]}", kTags, kOne),
           "rows 1: <x> | lengths 1 | weights 3");
  CHECK_EQ(read("{\"\\u0069ds\": [\"x\"]}", kTags, kOne), "rows 1: <x> | lengths 1");
}

TEST(of_two_members_of_a_name_the_last_one_counts) {
  CHECK_EQ(
      read("[[\"z\"],{\"ids\":[\"a\",\"b\"],\"weights\":[1,2],\"ids\":[\"c\"],\"weights\":[4]}]",
           kTags),
      "rows 2: <z> <c> | lengths 1 1 | weights 1 4");
  CHECK_EQ(read("{\"ids\":7,\"ids\":[\"c\"]}", kTags, kOne), "rows 1: <c> | lengths 1");
  CHECK_EQ(read("{\"ids\":[\"c\"],\"ids\":7}", kTags, kOne),
           "rows 1: | lengths 0 | 0: expected an array of values, got 7");
}

TEST(faults_of_bags) {
  const auto fault = [](std::string_view bag, const ColumnForm& form = kTags) {
    const std::string text = read(bag, form, kOne);
    return text.substr(text.find("0: e") + 3);
  };
  CHECK_EQ(fault("{}"), "expected \"ids\", got an object without it");
  CHECK_EQ(fault("{\"weights\":[]}"), "expected \"ids\", got an object without it");
  CHECK_EQ(fault("{\"ids\":[],\"id\":[]}"), "expected \"ids\" and \"weights\", got \"id\"");
  CHECK_EQ(fault("{\"ids\":[1],\"weights\":[1]}", kIds), "expected \"ids\" alone, got \"weights\"");
  CHECK_EQ(fault("{\"ids\":[\"a\"],\"weights\":[1,2]}"), "expected 1 weight, got 2");
  CHECK_EQ(fault("{\"ids\":[\"a\",\"b\"],\"weights\":[]}"), "expected 2 weights, got 0");
  CHECK_EQ(fault("{\"ids\":[\"a\"],\"weights\":null}"), "expected an array of weights, got null");
  CHECK_EQ(fault("{\"ids\":[\"a\"],\"weights\":[\"1\"]}"), "expected a number, got \"1\"");
  CHECK_EQ(fault("{\"ids\":[\"a\",null]}"), "expected a string, got null");
  CHECK_EQ(fault("\"a\""), "expected an array of values, got \"a\"");
}

TEST(a_fault_costs_its_row_alone) {
  CHECK_EQ(read("[1,\"x\",3,null,[4,[5]],6,{\"a\":[{}]},true,1.0,9223372036854775808]", kInts),
           "rows 10: 1 0 3 0 0 6 0 0 0 0 | missing 0 0 0 1 0 0 0 0 0 0 | "
           "1: expected an integer, got \"x\" | 4: expected an integer, got an array | "
           "6: expected an integer, got an object | 7: expected an integer, got true | "
           "8: expected an integer, got 1.0 | "
           "9: expected an integer of 64 bits, got 9223372036854775808");
  CHECK_EQ(read("[[1,2],[3,\"x\",4],[5]]", kIds),
           "rows 3: 1 2 5 | lengths 2 0 1 | 1: expected an integer, got \"x\"");
  CHECK_EQ(read("[\"a\",7,\"b\"]", kStrings), "rows 3: <a> <> <b> | 1: expected a string, got 7");
  CHECK_EQ(read("[9.9,\"12\"]", kFloats),
           "rows 2: 9.89999962 0 | 1: expected a number, got \"12\"");
}

TEST(what_was_found_is_shown_shortly) {
  CHECK_EQ(read("\"" + std::string(50, 'x') + "\"", kInts, kOne),
           "rows 1: 0 | 0: expected an integer, got \"" + std::string(32, 'x') + "...\"");
  CHECK_EQ(read("\"\xC3\xBC\\n\"", kInts, kOne),
           "rows 1: 0 | 0: expected an integer, got \"?\?\\n\"");
  CHECK_EQ(read(std::string(40, '9'), kInts, kOne),
           "rows 1: 0 | 0: expected an integer of 64 bits, got " + std::string(32, '9') + "...");
}

TEST(integers_are_of_64_bits_and_may_be_decimal_strings) {
  CHECK_EQ(read("[9223372036854775807,-9223372036854775808,-0,\"-9\",\"9223372036854775807\","
                "\"-9223372036854775808\",\"\\u0031\\u0032\"]",
                kInts),
           "rows 7: 9223372036854775807 -9223372036854775808 0 -9 9223372036854775807 "
           "-9223372036854775808 12");
  for (const char* text : {"\"1.0\"", "\" 1\"", "\"1 \"", "\"\"", "\"-\"", "\"+1\"", "\"01\"",
                           "\"1e2\"", "\"0x1\"", "\"1_0\"", "\"\\u0661\"", "1e2", "1.0", "-0.0",
                           "NaN", "Infinity", "-Infinity", "true", "false"}) {
    CHECK_EQ(read(text, kInts, kOne),
             "rows 1: 0 | 0: expected an integer, got " + std::string(text));
  }
  for (const char* text : {"9223372036854775808", "-9223372036854775809", "\"9223372036854775808\"",
                           "18446744073709551616"}) {
    CHECK_EQ(read(text, kInts, kOne),
             "rows 1: 0 | 0: expected an integer of 64 bits, got " + std::string(text));
  }
}

TEST(floats_are_rounded_once) {
  CHECK_EQ(read("[NaN, Infinity, -Infinity, 7, -0.0, 1e-99]", kFloats),
           "rows 6: nan inf -inf 7 -0 0");
  for (const char* text : {"1e39", "-1e39", "3.4028236e38", "1e999"}) {
    CHECK_EQ(read(text, kFloats, kOne),
             "rows 1: 0 | 0: expected a number that fits float32, got " + std::string(text));
  }
  std::mt19937_64 random(3);
  std::string text = "[";
  std::vector<float> expected;
  for (int i = 0; i < 3000; ++i) {
    const auto bits = static_cast<std::uint32_t>(random());
    const float value = std::bit_cast<float>(bits);
    if (!std::isfinite(value)) continue;
    char number[64];
    std::snprintf(number, sizeof number,
                  i % 3 == 0   ? "%.17g"
                  : i % 3 == 1 ? "%.6g"
                               : "%.9g",
                  static_cast<double>(value));
    // What rounds to infinity is a fault of its own.
    if (!std::isfinite(std::strtof(number, nullptr))) continue;
    expected.push_back(std::strtof(number, nullptr));
    text += (expected.size() > 1 ? "," : "") + std::string(number);
  }
  ColumnStorage storage;
  std::vector<Fault> faults;
  const RawColumn column = read_json_column(text + "]", kFloats, false, kAnything, storage, faults);
  CHECK(faults.empty());
  CHECK_EQ(column.floats.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK_EQ(std::bit_cast<std::uint32_t>(column.floats[i]),
             std::bit_cast<std::uint32_t>(expected[i]));
  }
}

TEST(strings_are_unescaped) {
  CHECK_EQ(
      read(
          "[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\",\"\\u00e9\\u20AC\\ud83d\\ude00x\",\"\xF0\x9F\x98\x80\"]",
          kStrings),
      "rows 3: <\"\\/\b\f\n\r\t> <\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80x> <\xF0\x9F\x98\x80>");
  CHECK_EQ(read("[\"\\u0000\"]", kStrings), std::string("rows 1: <\0>", 11));
  const std::string plain(100, 'y');
  CHECK_EQ(read("[\"" + plain + "\\n\",\"" + plain + "\"]", kStrings),
           "rows 2: <" + plain + "\n> <" + plain + ">");
}

TEST(text_that_is_not_json_is_one_fault) {
  const auto whole = [](std::string_view text, const ColumnForm& form = kStrings) {
    const std::string found = read(text, form);
    const std::string_view begin = "rows 0: | whole: ";
    return found.starts_with(begin) ? found.substr(begin.size()) : "no such fault: " + found;
  };
  CHECK_EQ(whole(""), "expected a value at byte 0, got the end of the text");
  CHECK_EQ(whole("[1,\"a\" \"b\"]"), "expected ',' or ']' at byte 7, got '\"b\"'");
  CHECK_EQ(whole("[\"a\",]"), "expected a value at byte 5, got ']'");
  CHECK_EQ(whole("[,\"a\"]"), "expected a value at byte 1, got ','");
  CHECK_EQ(whole("[\"a\"] x"), "expected nothing after the value at byte 6, got 'x'");
  CHECK_EQ(whole("[\"a\"]]"), "expected nothing after the value at byte 5, got ']'");
  CHECK_EQ(whole("[\"a"), "expected a closing quote at byte 3, got the end of the text");
  CHECK_EQ(whole("[\"a\\x\"]"), "expected an escape at byte 4, got 'x\"'");
  CHECK_EQ(whole("[\"\\u12g4\"]"), "expected four hexadecimal digits at byte 4, got '12g4\"'");
  CHECK_EQ(whole("[\"a\tb\"]"), "expected no control character at byte 3, got '?b\"'");
  CHECK_EQ(whole("[\"\\ud800x\"]"),
           "expected a low surrogate behind a high one at byte 2, got '\\ud800x\"'");
  CHECK_EQ(whole("[\"\\ude00\"]"),
           "expected a high surrogate before a low one at byte 2, got '\\ude00\"'");
  for (const char* bytes :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xC3", "\xE2\x82", "\xFF"}) {
    CHECK(whole("[\"" + std::string(bytes) + "\"]").starts_with("expected UTF-8 at byte 2, got"));
  }
  for (const char* text :
       {"[01]",         "[1.]",   "[.5]",    "[+1]",      "[1e]",       "[nul]",         "[truE]",
        "[nan]",        "[--1]",  "[1x]",    "[Infinit]", "[{\"a\":}]", "[{\"a\"}]",     "[{a:1}]",
        "[{\"a\":1,}]", "[[1,2]", "[[1 2]]", "[}",        "[{]",        "\xEF\xBB\xBF[]"}) {
    CHECK(whole(text, kFloats).starts_with("expected "));
    CHECK(whole(text, kInts).starts_with("expected "));
  }
}

TEST(rows_that_are_no_array_are_one_fault) {
  for (const char* text : {"5", "null", "\"a\"", "{\"ids\":[]}", "true"}) {
    const std::string found = read(text, kInts);
    CHECK(found.starts_with(
        "rows 0: | whole: expected an array with a value for each candidate, got "));
  }
}

TEST(faults_of_a_malformed_text_are_not_listed_beside_it) {
  CHECK_EQ(read("[\"x\",\"y\",tru]", kInts),
           "rows 0: | whole: expected a value at byte 9, got 'tru'");
}

TEST(nesting_is_limited) {
  const auto nested = [](std::size_t depth) {
    return "[" + std::string(depth, '[') + std::string(depth, ']') + "]";
  };
  CHECK_EQ(read(nested(64), kInts), "rows 1: 0 | 0: expected an integer, got an array");
  CHECK(read(nested(65), kInts).starts_with("rows 0: | whole: expected at most 64 arrays"));
  CHECK(read(nested(1000000), kInts).starts_with("rows 0: | whole: expected at most 64 arrays"));
}

TEST(limits) {
  const ColumnLimits three{3, 100, 10};
  CHECK_EQ(read("[1,2,3]", kInts, kMany, three), "rows 3: 1 2 3");
  CHECK_THROWS(ColumnTooLarge, "more than 3 rows", read("[1,2,3,4]", kInts, kMany, three));
  CHECK_THROWS(ColumnTooLarge, "more than 3 rows",
               read("[\"a\",\"a\",\"a\",\"a\"]", kStrings, kMany, three));
  CHECK_THROWS(ColumnTooLarge, "more than 3 rows", read("[[],[],[],[]]", kIds, kMany, three));
  CHECK_THROWS(ColumnTooLarge, "more than 3 rows",
               read("[null,null,null,null]", kPair, kMany, three));
  const ColumnLimits few{100, 3, 10};
  CHECK_EQ(read("[[1,2,3]]", kIds, kMany, few), "rows 1: 1 2 3 | lengths 3");
  CHECK_THROWS(ColumnTooLarge, "more than 3 values", read("[[1,2],[3,4]]", kIds, kMany, few));
  CHECK_THROWS(ColumnTooLarge, "more than 3 values", read("[null,null]", kPair, kMany, few));
  CHECK_THROWS(ColumnTooLarge, "more than 3 values", read("[1,2,3,4]", kInts, kMany, few));
  CHECK_THROWS(ColumnTooLarge, "more than 3 weights",
               read("[{\"ids\":[],\"weights\":[1,2,3,4]}]", kTags, kMany, few));
  CHECK_EQ(read("[\"0123456789\"]", kStrings, kMany, few), "rows 1: <0123456789>");
  CHECK_THROWS(ColumnTooLarge, "a string of more than 10 bytes",
               read("[\"0123456789a\"]", kStrings, kMany, few));
  CHECK_EQ(read("[]", kInts, kMany, {0, 0, 0}), "rows 0:");
  CHECK_THROWS(ColumnTooLarge, "more than 0 rows", read("1", kInts, kOne, {0, 0, 0}));
}

TEST(long_columns_equal_their_rows_one_by_one) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 200; ++round) {
    const std::size_t count = random() % 3000;
    std::string ints = "[";
    std::string strings = "[";
    std::string bags = "[";
    std::string int_values;
    std::string string_values;
    for (std::size_t i = 0; i < count; ++i) {
      const auto number = static_cast<std::int64_t>(random()) >> random() % 64;
      const std::string text = std::to_string(number);
      const char* const separator = i == 0 ? "" : random() % 8 == 0 ? " , " : ",";
      ints += separator + text;
      strings += separator + ('"' + text + std::string(random() % 20, 'x') + '"');
      string_values += " <" + strings.substr(strings.rfind('"', strings.size() - 2) + 1);
      string_values.back() = '>';
      bags += separator + ("[" + text + "," + text + "]");
      int_values += ' ' + text;
    }
    const std::string rows = "rows " + std::to_string(count) + ':';
    CHECK_EQ(read(ints + "]", kInts), rows + int_values);
    CHECK_EQ(read(strings + "]", kStrings), rows + string_values);
    CHECK(read(bags + "]", kIds).starts_with(rows + (count > 0 ? " " : "")));
  }
}

TEST(storage_is_used_again) {
  ColumnStorage storage;
  std::vector<Fault> faults;
  read_json_column("[{\"ids\":[\"a\"],\"weights\":[2]},null]", kTags, false, kAnything, storage,
                   faults);
  const RawColumn column = read_json_column("[3]", kInts, false, kAnything, storage, faults);
  CHECK_EQ(text_of(column, faults), "rows 1: 3");
}

int main() { return anabranch::testing::run_tests(); }
