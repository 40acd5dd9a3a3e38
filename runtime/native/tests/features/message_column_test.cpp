// Every form of a serialised Column, its faults with their texts, its limits, and bytes that are no
// message.
#include "anabranch/features/message_column.h"

#include <cmath>
#include <limits>
#include <random>

#include "check.h"
#include "column_text.h"
#include "message_bytes.h"

using namespace anabranch::features;
using namespace anabranch::testing;

namespace {

constexpr ColumnForm kInts{ValueType::kInt64};
constexpr ColumnForm kFloats{ValueType::kFloat32};
constexpr ColumnForm kStrings{ValueType::kString};
constexpr ColumnForm kPair{ValueType::kFloat32, 2};
constexpr ColumnForm kIds{ValueType::kInt64, 1, true};
constexpr ColumnForm kTags{ValueType::kString, 1, true, true};

enum Rows { kOne, kMany };

// The same wherever in memory the bytes are.
std::string read(std::string_view bytes, const ColumnForm& form, Rows rows = kMany,
                 const ColumnLimits& limits = kAnything) {
  std::string first;
  for (const std::size_t misaligned : {0, 1, 4}) {
    const ExactBytes exact(bytes, misaligned);
    ColumnStorage storage;
    std::vector<Fault> faults;
    const RawColumn column =
        read_message_column(exact.view(), form, rows == kOne, limits, storage, faults);
    const std::string broken = anabranch::testing::broken(column, form, faults);
    if (!broken.empty()) return broken;
    const std::string text = text_of(column, faults);
    if (misaligned == 0) first = text;
    if (text != first) return first + " became " + text;
  }
  return first;
}

// Why all of a column is at fault.
std::string whole(std::string_view bytes, const ColumnForm& form, Rows rows = kMany) {
  const std::string text = read(bytes, form, rows);
  const std::string_view begin = "rows 0: | whole: ";
  return text.starts_with(begin) ? text.substr(begin.size()) : "no such fault: " + text;
}

const char* const kNoMessage = "expected a serialised Column, got bytes that are none";

}  // namespace

TEST(values_of_every_field) {
  CHECK_EQ(read(packed_int64s({1, -2, 300}), kInts), "rows 3: 1 -2 300");
  CHECK_EQ(read(raw_int64s({1, -2, 300}), kInts), "rows 3: 1 -2 300");
  CHECK_EQ(read(packed_floats({1.5, -0.0F}), kFloats), "rows 2: 1.5 -0");
  CHECK_EQ(read(raw_floats({1.5, NAN, INFINITY}), kFloats), "rows 3: 1.5 nan inf");
  // Integers are numbers, as in JSON: the nearest float32.
  CHECK_EQ(read(packed_int64s({1, -2, 16777217}), kFloats), "rows 3: 1 -2 16777216");
  CHECK_EQ(read(raw_int64s({1, -2, 16777219}), kFloats), "rows 3: 1 -2 16777220");
  CHECK_EQ(read(strings({"a", "", "c"}), kStrings), "rows 3: <a> <> <c>");
  CHECK_EQ(read("", kInts), "rows 0:");
  CHECK_EQ(read(packed_int64s({7}), kInts, kOne), "rows 1: 7");
}

TEST(values_packed_or_not_follow_each_other) {
  const std::string bytes = varint_field(3, 5) + packed_int64s({6, 7}) + varint_field(3, 8);
  CHECK_EQ(read(bytes, kInts), "rows 4: 5 6 7 8");
  const std::string half = tag(4, 5) + bytes_of<float>({0.5F});
  CHECK_EQ(read(half + packed_floats({1, 2}) + half, kFloats), "rows 4: 0.5 1 2 0.5");
}

TEST(varints_of_every_length) {
  std::mt19937_64 random(5);
  std::vector<std::int64_t> values = {0, -1, std::numeric_limits<std::int64_t>::min(),
                                      std::numeric_limits<std::int64_t>::max()};
  for (int i = 0; i < 5000; ++i) {
    values.push_back(static_cast<std::int64_t>(random() >> random() % 64));
  }
  CHECK_EQ(read(packed_int64s(values), kInts), read(raw_int64s(values), kInts));
}

TEST(rows_of_some_values) {
  CHECK_EQ(read(raw_floats({1, 2, 3, 4}), kPair), "rows 2: 1 2 3 4");
  CHECK_EQ(read(raw_floats({1, 2}), kPair, kOne), "rows 1: 1 2");
  CHECK_EQ(whole(raw_floats({1, 2, 3}), kPair), "expected a multiple of 2 values, got 3");
  CHECK_EQ(whole(raw_floats({1, 2, 3}), kPair, kOne), "expected 2 values, got 3");
  CHECK_EQ(whole("", kInts, kOne), "expected 1 value, got 0");
}

TEST(ragged_rows) {
  CHECK_EQ(read(packed_int64s({1, 2, 3}) + lengths({2, 0, 1}), kIds),
           "rows 3: 1 2 3 | lengths 2 0 1");
  CHECK_EQ(read(packed_int64s({1, 2, 3}), kIds, kOne), "rows 1: 1 2 3 | lengths 3");
  CHECK_EQ(read(packed_int64s({1, 2, 3}) + lengths({3}), kIds, kOne), "rows 1: 1 2 3 | lengths 3");
  CHECK_EQ(read("", kIds, kOne), "rows 1: | lengths 0");
  CHECK_EQ(read(lengths({0, 0}), kIds), "rows 2: | lengths 0 0");
  CHECK_EQ(read("", kIds), "rows 0:");
  CHECK_EQ(read(strings({"a", "b"}) + lengths({1, 1}) + weights({1, 2}), kTags),
           "rows 2: <a> <b> | lengths 1 1 | weights 1 2");
}

TEST(lengths_must_add_up) {
  const std::string ids = packed_int64s({1, 2, 3});
  CHECK_EQ(whole(ids + lengths({2, 2}), kIds), "expected lengths that add up to 3, got 4");
  CHECK_EQ(whole(ids, kIds), "expected lengths that add up to 3, got 0");
  CHECK_EQ(whole(ids + lengths({0xFFFFFFFF, 4}), kIds),
           "expected lengths that add up to 3, got 4294967299");
  CHECK_EQ(whole(ids + lengths({2, 1}), kIds, kOne), "expected 1 length, got 2");
  CHECK_EQ(whole(ids + bytes_field(6, "abc"), kIds),
           "expected a multiple of 4 bytes in lengths, got 3");
  CHECK_EQ(whole(ids + lengths({1, 1, 1}), kInts), "expected no lengths, got 12 bytes");
}

TEST(weights_must_be_as_many_as_values) {
  const std::string tags = strings({"a", "b"}) + lengths({1, 1});
  CHECK_EQ(whole(tags + weights({1}), kTags), "expected 2 weights, got 1");
  CHECK_EQ(whole(tags + bytes_field(7, "abc"), kTags),
           "expected a multiple of 4 bytes in weights, got 3");
  CHECK_EQ(whole(packed_int64s({1}) + lengths({1}) + weights({1}), kIds),
           "expected no weights, got 4 bytes");
}

TEST(types_are_not_converted) {
  CHECK_EQ(whole(strings({"1"}), kFloats), "expected numbers: floats, int64s or raw, got strings");
  CHECK_EQ(whole(packed_floats({1}), kInts), "expected int64s or raw INT64, got floats");
  CHECK_EQ(whole(strings({"1"}), kInts), "expected int64s or raw INT64, got strings");
  CHECK_EQ(whole(raw_floats({1, 2}), kInts), "expected int64s or raw INT64, got raw FLOAT32");
  CHECK_EQ(whole(bytes_field(2, "12345678"), kInts),
           "expected int64s or raw INT64, got raw TYPE_UNSPECIFIED");
  CHECK_EQ(whole(raw_int64s({1}), kStrings), "expected strings, got raw INT64");
  CHECK_EQ(whole(varint_field(1, 3) + bytes_field(2, "abcd"), kStrings),
           "expected strings, got raw STRING");
  CHECK_EQ(whole(varint_field(1, 9) + bytes_field(2, "abcd"), kFloats),
           "expected numbers: floats, int64s or raw, got raw 9");
  CHECK_EQ(whole(varint_field(1, 2) + packed_int64s({1}), kInts),
           "expected type INT64, got FLOAT32");
  CHECK_EQ(read(varint_field(1, 1) + packed_int64s({1}), kInts), "rows 1: 1");
}

TEST(values_come_in_one_field) {
  const std::string expected = "expected one of raw, int64s, floats and strings, got ";
  CHECK_EQ(whole(raw_int64s({1}) + packed_int64s({1}), kInts), expected + "raw and int64s");
  CHECK_EQ(whole(packed_floats({1}) + strings({"a"}), kFloats), expected + "floats and strings");
  CHECK_EQ(read(packed_int64s({1}) + bytes_field(2, "") + bytes_field(4, ""), kInts), "rows 1: 1");
}

TEST(raw_holds_whole_numbers) {
  CHECK_EQ(whole(varint_field(1, 1) + bytes_field(2, "123456789"), kInts),
           "expected a multiple of 8 bytes in raw, got 9");
  CHECK_EQ(whole(varint_field(1, 2) + bytes_field(2, "123"), kFloats),
           "expected a multiple of 4 bytes in raw, got 3");
}

TEST(of_a_field_sent_twice_the_last_one_counts) {
  CHECK_EQ(read(raw_floats({9, 9, 9}) + raw_int64s({4}), kInts), "rows 1: 4");
  CHECK_EQ(read(lengths({9}) + packed_int64s({4}) + lengths({1}), kIds), "rows 1: 4 | lengths 1");
  CHECK_EQ(read(raw_int64s({4}) + bytes_field(2, ""), kInts), "rows 0:");
}

TEST(unknown_fields_are_skipped) {
  const std::string value = packed_int64s({4});
  const std::string group = tag(9, 3) + varint_field(1, 2) + tag(10, 3) + tag(10, 4) + tag(9, 4);
  for (const std::string& unknown :
       {varint_field(8, 300), tag(8, 1) + "12345678", bytes_field(200, "abc"), tag(8, 5) + "1234",
        group, tag(3, 5) + "1234", tag(2, 0) + "\x05", tag(5, 1) + "12345678",
        tag(1, 2) + varint(1) + "x", tag((1U << 29) - 1, 0) + "\x01"}) {
    CHECK_EQ(read(unknown + value, kInts), "rows 1: 4");
    CHECK_EQ(read(value + unknown, kInts), "rows 1: 4");
  }
}

TEST(bytes_that_are_no_message) {
  const std::string endless(9, '\x80');
  for (const std::string& bytes :
       {std::string("\x00", 1), tag(0, 0) + "\x01", tag(3, 6), tag(3, 7), tag(3, 0),
        tag(3, 0) + "\x80", tag(3, 0) + endless + "\x80\x01", tag(2, 2) + "\x05xxxx",
        tag(2, 2) + varint(std::uint64_t{1} << 31) + "x", tag(4, 2) + "\x03xxx", tag(4, 5) + "xxx",
        tag(8, 1) + "1234567", tag(3, 2) + "\x01\x80", tag(9, 4), tag(9, 3), tag(9, 3) + tag(8, 4),
        std::string("\xFF\xFF\xFF\xFF\x7F\x01"), endless + "\x01"}) {
    CHECK_EQ(whole(bytes, kInts), kNoMessage);
    CHECK_EQ(whole(packed_int64s({4}) + bytes, kInts), kNoMessage);
  }
}

TEST(groups_are_nested_as_deep_as_protobuf_has_it) {
  const auto nested = [](std::size_t depth) {
    std::string bytes;
    for (std::size_t i = 0; i < depth; ++i) bytes += tag(9, 3);
    for (std::size_t i = 0; i < depth; ++i) bytes += tag(9, 4);
    return bytes;
  };
  CHECK_EQ(read(nested(100), kInts), "rows 0:");
  CHECK_EQ(whole(nested(101), kInts), kNoMessage);
  CHECK_EQ(whole(nested(1000000), kInts), kNoMessage);
}

TEST(strings_that_are_no_text_cost_their_row_alone) {
  CHECK_EQ(read(strings({"a", "b\xFF", "c"}), kStrings),
           "rows 3: <a> <> <c> | 1: expected UTF-8, got \"b?\"");
  CHECK_EQ(read(strings({"a", "b", "\xED\xA0\x80", "d", "\xC3"}) + lengths({1, 2, 0, 1, 1}) +
                    weights({1, 2, 3, 4, 5}),
                kTags),
           "rows 5: <a> <d> | lengths 1 0 0 1 0 | weights 1 4 | 1: expected UTF-8, got \"?\?\?\" | "
           "4: expected UTF-8, got \"?\"");
}

TEST(limits) {
  const ColumnLimits three{3, 100, 4};
  CHECK_EQ(read(packed_int64s({1, 2, 3}), kInts, kMany, three), "rows 3: 1 2 3");
  CHECK_THROWS(ColumnTooLarge, "more than 3 rows",
               read(packed_int64s({1, 2, 3, 4}), kInts, kMany, three));
  CHECK_THROWS(ColumnTooLarge, "more than 3 rows", read(lengths({0, 0, 0, 0}), kIds, kMany, three));
  CHECK_THROWS(ColumnTooLarge, "a string of more than 4 bytes",
               read(strings({"abcde"}), kStrings, kMany, three));
  const ColumnLimits few{100, 3, 4};
  for (const auto& [bytes, form] :
       {std::pair{packed_int64s({1, 2, 3, 4}), kInts}, std::pair{raw_int64s({1, 2, 3, 4}), kInts},
        std::pair{packed_floats({1, 2, 3, 4}), kFloats},
        std::pair{raw_floats({1, 2, 3, 4}), kFloats},
        std::pair{strings({"a", "b", "c", "d"}), kStrings},
        std::pair{varint_field(3, 1) + packed_int64s({1, 2, 3}), kInts},
        std::pair{packed_int64s({1, 2, 3}) + varint_field(3, 1), kInts}}) {
    CHECK_THROWS(ColumnTooLarge, "more than 3 values", read(bytes, form, kMany, few));
  }
}

TEST(storage_is_used_again) {
  ColumnStorage storage;
  std::vector<Fault> faults;
  const std::string tags = strings({"a"}) + lengths({1}) + weights({2});
  read_message_column(tags, kTags, false, kAnything, storage, faults);
  const std::string ids = packed_int64s({3});
  const RawColumn column = read_message_column(ids, kInts, false, kAnything, storage, faults);
  CHECK_EQ(text_of(column, faults), "rows 1: 3");
}

int main() { return anabranch::testing::run_tests(); }
