#include "anabranch/json_numbers.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>

#include "check.h"

using namespace anabranch;

namespace {

constexpr std::size_t kDepth = 8;

template <class T>
constexpr Datatype kType = Datatype::kBool;
template <>
constexpr Datatype kType<std::int8_t> = Datatype::kInt8;
template <>
constexpr Datatype kType<std::int32_t> = Datatype::kInt32;
template <>
constexpr Datatype kType<std::int64_t> = Datatype::kInt64;
template <>
constexpr Datatype kType<std::uint8_t> = Datatype::kUint8;
template <>
constexpr Datatype kType<std::uint64_t> = Datatype::kUint64;
template <>
constexpr Datatype kType<float> = Datatype::kFp32;
template <>
constexpr Datatype kType<double> = Datatype::kFp64;

template <class T>
std::vector<T> parse(std::string_view text, std::size_t count) {
  const AlignedBuffer buffer = parse_numbers(text, kType<T>, count, kDepth);
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(&values[i], buffer.data() + i * sizeof(T), sizeof(T));
  }
  return values;
}

// One number where there is too little text behind it for the fast path, and where there is enough.
template <class T>
T carefully(const std::string& number) {
  return parse<T>('[' + number + ']', 1)[0];
}
template <class T>
T fast(const std::string& number) {
  return parse<T>('[' + number + ']' + std::string(200, ' '), 1)[0];
}

template <class T>
void check_out_of_range(const std::string& number) {
  CHECK_THROWS(JsonError, "is out of range for", carefully<T>(number));
  CHECK_THROWS(JsonError, "is out of range for", fast<T>(number));
}

template <class T>
bool same(T a, T b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

template <class T>
void check_float(const std::string& number) {
  const T expected = std::is_same_v<T, float>
                         ? static_cast<T>(std::strtof(number.c_str(), nullptr))
                         : static_cast<T>(std::strtod(number.c_str(), nullptr));
  if (std::isinf(expected)) return check_out_of_range<T>(number);
  for (const T found : {carefully<T>(number), fast<T>(number)}) {
    if (!same(found, expected)) CHECK_EQ(number + " is read as " + std::to_string(found), "");
  }
}

std::string printed(const char* format, double value) {
  char text[2000];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

// The message of the error that a text raises.
std::string message(std::string_view text, Datatype type, std::size_t count) {
  try {
    parse_numbers(text, type, count, kDepth);
  } catch (const JsonError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST(flat_and_nested_arrays_give_the_same_numbers) {
  const std::vector<std::int32_t> expected = {1, -2, 3, 4};
  for (const char* text : {"[1,-2,3,4]", "[[1,-2],[3,4]]", " [ [ [1] , [-2] ] ,\n[[3],[4]]\t]\r\n",
                           "[1,[-2,[3]],4]", "[[],[1,-2,[]],3,4,[]]"}) {
    CHECK(parse<std::int32_t>(text, 4) == expected);
  }
  CHECK(parse<float>("[]", 0).empty());
  CHECK(parse<float>("[[],[[]]]", 0).empty());
}

TEST(floats_have_the_tokens_of_triton) {
  const auto values = parse<float>("[NaN,Infinity,-Infinity,-0.0,0]", 5);
  CHECK(std::isnan(values[0]));
  CHECK_EQ(values[1], std::numeric_limits<float>::infinity());
  CHECK_EQ(values[2], -std::numeric_limits<float>::infinity());
  CHECK(same(values[3], -0.0f));
  CHECK(same(values[4], 0.0f));
}

TEST(booleans_are_words_or_zero_and_one) {
  const AlignedBuffer buffer = parse_numbers("[true,false,1, 0]", Datatype::kBool, 4, kDepth);
  CHECK(std::memcmp(buffer.data(), "\1\0\1\0", 4) == 0);
  for (const char* text :
       {"[2]", "[10]", "[1.0]", "[1e0]", "[-1]", "[-0]", "[tru]", "[01]", "[\"true\"]", "[null]"}) {
    CHECK(message(text, Datatype::kBool, 1)
              .starts_with("element 0 at byte 1: expected true, false, 0 or 1 for BOOL, found '"));
  }
}

TEST(integers_reach_their_limits_and_no_further) {
  const auto both = [](auto lowest, const char* low, const char* below, auto highest,
                       const char* high, const char* above) {
    using T = decltype(lowest);
    CHECK(carefully<T>(low) == lowest && fast<T>(low) == lowest);
    CHECK(carefully<T>(high) == highest && fast<T>(high) == highest);
    check_out_of_range<T>(below);
    check_out_of_range<T>(above);
  };
  both(std::int8_t{-128}, "-128", "-129", std::int8_t{127}, "127", "128");
  both(std::uint8_t{0}, "-0", "-1", std::uint8_t{255}, "255", "256");
  both(std::numeric_limits<std::int32_t>::min(), "-2147483648", "-2147483649",
       std::numeric_limits<std::int32_t>::max(), "2147483647", "2147483648");
  both(std::numeric_limits<std::int64_t>::min(), "-9223372036854775808", "-9223372036854775809",
       std::numeric_limits<std::int64_t>::max(), "9223372036854775807", "9223372036854775808");
  both(std::uint64_t{0}, "0", "-18446744073709551615", std::numeric_limits<std::uint64_t>::max(),
       "18446744073709551615", "18446744073709551616");
}

TEST(random_integers_survive_dump_and_parse) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::int64_t> values(1 + random() % 300);
    for (auto& value : values) value = static_cast<std::int64_t>(random()) >> random() % 64;
    const std::string text = dump_numbers(Datatype::kInt64, std::as_bytes(std::span(values)));
    CHECK(parse<std::int64_t>(text, values.size()) == values);
  }
}

TEST(awkward_decimals_are_rounded_once) {
  for (const char* number : {"0",
                             "-0",
                             "0.0",
                             "0e999999",
                             "-0e-999999",
                             "1e-45",
                             "7e-46",
                             "7.1e-46",
                             "-1e-46",
                             "1.17549435e-38",
                             "1.1754942e-38",
                             "3.4028235e38",
                             "3.4028236e38",
                             "3.40282356779733e38",
                             "3.4028235677973366e38",
                             "3.5e38",
                             "1e39",
                             "1e308",
                             "1.7976931348623157e308",
                             "1.7976931348623159e308",
                             "1e309",
                             "4.9e-324",
                             "2.4703282292062327e-324",
                             "2.4703282292062328e-324",
                             "2.2250738585072011e-308",
                             "1e-400",
                             "1e999999999999999999999",
                             "1e-999999999999999999999",
                             "16777217",
                             "16777219",
                             "16777216.5",
                             "16777217.0000000000000000001",
                             "9007199254740993",
                             "9007199254740992.5",
                             "9007199254740993.00000001",
                             "0.30000001192092896",
                             "1.00000017881393432617187499",
                             "1.00000017881393432617187500",
                             "1.00000017881393432617187501",
                             "8388609.5",
                             "8388608.5",
                             "123456789012345678",
                             "1234567890123456789",
                             "12345678901234567890",
                             "999999999999999999",
                             "1e22",
                             "1e23",
                             "-1e-22",
                             "1E+5",
                             "1e05",
                             "1e-5",
                             "123456.789e3",
                             "12345678901234567e22",
                             "123456789012345678e22",
                             "340282356779733661e21",
                             "340282356779733662e21",
                             "0.000000000000000000000000000000000000001",
                             "5e-324",
                             "340282346638528859811704183484516925440"}) {
    check_float<float>(number);
    check_float<double>(number);
  }
  // Long mantissas: a midpoint of two floats, the same with one more digit far behind, and zeros.
  const std::string midpoint = printed("%.200f", 1.0 + 0x1p-24);
  for (const std::string& number :
       {midpoint, midpoint + "1", midpoint + std::string(2000, '0'),
        midpoint + std::string(2000, '0') + "1", "0." + std::string(400, '0') + "1e401",
        std::string(400, '1') + "e-400", "1" + std::string(400, '0'),
        "0." + std::string(400, '0') + "1"}) {
    check_float<float>(number);
    check_float<double>(number);
  }
}

TEST(random_decimals_are_rounded_once) {
  std::mt19937_64 random(11);
  const char* const formats[] = {"%.3f", "%.6f", "%.9g", "%.17g", "%.6g", "%.17e", "%.25g", "%.1f"};
  for (int round = 0; round < 100000; ++round) {
    const auto bits = random();
    double value = 0;
    switch (random() % 5) {
      case 0:  // any double
        value = std::bit_cast<double>(bits);
        break;
      case 1:  // any float
        value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
        break;
      case 2:  // the middle of two floats
        value = (double{std::bit_cast<float>(static_cast<std::uint32_t>(bits))} +
                 double{std::bit_cast<float>(static_cast<std::uint32_t>(bits) + 1)}) /
                2;
        break;
      case 3:  // a probability
        value = static_cast<double>(bits >> 11) * 0x1p-53;
        break;
      default:  // a price
        value = static_cast<double>(static_cast<std::int64_t>(bits) >> 40) / 100;
    }
    if (!std::isfinite(value)) continue;
    const std::string number = printed(formats[random() % std::size(formats)], value);
    check_float<float>(number);
    check_float<double>(number);
  }
}

TEST(long_arrays_equal_their_elements_one_by_one) {
  std::mt19937_64 random(13);
  for (int round = 0; round < 300; ++round) {
    std::string text = "[";
    std::vector<std::string> numbers(1 + random() % 200);
    for (auto& number : numbers) {
      number =
          printed(random() % 2 == 0 ? "%.5g" : "%.17g",
                  std::ldexp(static_cast<double>(random()), -static_cast<int>(random() % 100)));
      text += (text.size() > 1 ? "," : "") + std::string(random() % 3, ' ') + number;
    }
    const auto values = parse<float>(text + ']', numbers.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      CHECK(same(values[i], std::strtof(numbers[i].c_str(), nullptr)));
    }
  }
}

TEST(faults_are_named_with_their_place) {
  using enum Datatype;
  CHECK_EQ(message("", kFp32, 0),
           "byte 0: expected an array of numbers, found the end of the text");
  CHECK_EQ(message("5  ", kFp32, 1), "byte 0: expected an array of numbers, found '5  '");
  CHECK_EQ(message("{\"a\":1}", kFp32, 1),
           "byte 0: expected an array of numbers, found '{\"a\":1'");
  CHECK_EQ(message("[1 2]", kFp32, 2), "byte 3: expected ',' or ']', found '2'");
  CHECK_EQ(message("[1,2", kFp32, 2), "byte 4: expected ',' or ']', found the end of the text");
  CHECK_EQ(message("[1] x", kFp32, 1), "byte 4: expected nothing after the array, found 'x'");
  CHECK_EQ(message("[1]]", kFp32, 1), "byte 3: expected nothing after the array, found ']'");
  CHECK_EQ(message("[1,]", kFp32, 1), "element 1 at byte 3: expected a number for FP32, found ']'");
  CHECK_EQ(message("[,1]", kFp32, 1), "element 0 at byte 1: expected a number for FP32, found ','");
  CHECK_EQ(message("[1,null]", kFp32, 2),
           "element 1 at byte 3: expected a number for FP32, found 'null'");
  CHECK_EQ(message("[1,\"2\"]", kInt8, 2),
           "element 1 at byte 3: expected an integer for INT8, found '\"2\"'");
  CHECK_EQ(message("[1, 1.5]", kInt32, 2),
           "element 1 at byte 4: expected an integer for INT32, found '1.5'");
  CHECK_EQ(message("[1e3]", kInt32, 1),
           "element 0 at byte 1: expected an integer for INT32, found '1e3'");
  CHECK_EQ(message("[7,300]", kUint8, 2),
           "element 1 at byte 3: '300' is out of range for UINT8, which holds 0 to 255");
  CHECK_EQ(message("[1e39]", kFp32, 1), "element 0 at byte 1: '1e39' is out of range for FP32");
  CHECK_EQ(message("[1,2]", kFp32, 1), "expected 1 elements, found more at byte 3");
  CHECK_EQ(message("[1,2]", kFp32, 2), "no error");
  CHECK_EQ(message("[[1,2,4,5]]", kFp32, 5), "expected 5 elements, found 4");
  CHECK_EQ(message("[1,2]", kFp32, 3), "expected 3 elements, more than 5 bytes of text can hold");
  for (const char* number : {"01", "-01", "00", "0123.5"}) {
    CHECK_EQ(message('[' + std::string(number) + ']', kFp64, 1),
             "element 0 at byte 1: expected a number without leading zeros for FP64, found '" +
                 std::string(number) + "'");
  }
  for (const char* number : {"+1", ".5", "5.", "1.e5", "1e", "1e+", "--1", "-", "-.5", "nan", "inf",
                             "-NaN", "Infinit", "0x10", "1_0", "\xff"}) {
    const std::string text = '[' + std::string(number) + ']';
    CHECK(message(text, kFp64, 1) != "no error");
    CHECK(message(text + std::string(200, ' '), kFp64, 1) == message(text, kFp64, 1));
  }
  CHECK_EQ(
      message("[\x01\xff" + std::string(50, 'x') + "]", kFp32, 1),
      "element 0 at byte 1: expected a number for FP32, found '??" + std::string(30, 'x') + "...'");
}

TEST(depth_is_limited_and_costs_no_stack) {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  CHECK_EQ(parse_numbers(nested(3), Datatype::kFp32, 0, 3).size_bytes(), 0u);
  CHECK_THROWS(JsonTooDeep, "nesting at byte 3 is deeper than 3",
               parse_numbers(nested(4), Datatype::kFp32, 0, 3));
  CHECK_EQ(parse_numbers(nested(1000000), Datatype::kFp32, 0, 1000000).size_bytes(), 0u);
}

TEST(memory_is_asked_for_only_where_the_text_justifies_it) {
  CHECK_THROWS(JsonError, "can hold",
               parse_numbers("[1]", Datatype::kFp64, std::size_t{1} << 62, kDepth));
}

TEST(floats_are_written_shortest_and_as_floats) {
  const float values[] = {0.1f, 1.0f, -0.0f, 1e-45f, 3.4028235e38f, 16777216.0f, 1e21f, 0.3f};
  CHECK_EQ(dump_numbers(Datatype::kFp32, std::as_bytes(std::span(values))),
           "[0.1,1.0,-0.0,1e-45,3.4028235e+38,16777216.0,1e+21,0.3]");
  const double wide[] = {0.1, 2.5, 5e-324, 1.7976931348623157e308, 100.0};
  CHECK_EQ(dump_numbers(Datatype::kFp64, std::as_bytes(std::span(wide))),
           "[0.1,2.5,5e-324,1.7976931348623157e+308,100.0]");
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float special[] = {std::nanf(""), kInfinity, -kInfinity};
  CHECK_EQ(dump_numbers(Datatype::kFp32, std::as_bytes(std::span(special))),
           "[NaN,Infinity,-Infinity]");
}

TEST(other_kinds_are_written_plainly) {
  const bool flags[] = {true, false};
  CHECK_EQ(dump_numbers(Datatype::kBool, std::as_bytes(std::span(flags))), "[true,false]");
  const std::int8_t small[] = {-128, 0, 127};
  CHECK_EQ(dump_numbers(Datatype::kInt8, std::as_bytes(std::span(small))), "[-128,0,127]");
  const std::uint64_t large[] = {std::numeric_limits<std::uint64_t>::max()};
  CHECK_EQ(dump_numbers(Datatype::kUint64, std::as_bytes(std::span(large))),
           "[18446744073709551615]");
  CHECK_EQ(dump_numbers(Datatype::kFp32, {}), "[]");
}

TEST(random_floats_survive_dump_and_parse) {
  std::mt19937_64 random(17);
  for (int round = 0; round < 100; ++round) {
    std::vector<float> values(1000);
    for (auto& value : values) {
      value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
      if (std::isnan(value)) value = 0.5f;
    }
    const std::string text = dump_numbers(Datatype::kFp32, std::as_bytes(std::span(values)));
    const auto back = parse<float>(text, values.size());
    CHECK(std::memcmp(back.data(), values.data(), 4 * values.size()) == 0);
  }
}

TEST(datatypes_are_found_by_name) {
  CHECK(datatype_named("FP32") == Datatype::kFp32);
  CHECK(datatype_named("BOOL") == Datatype::kBool);
  CHECK(!datatype_named("BYTES") && !datatype_named("fp32") && !datatype_named(""));
  CHECK_EQ(name_of(Datatype::kUint16), "UINT16");
  CHECK_EQ(size_of(Datatype::kInt16), 2u);
}

int main() { return anabranch::testing::run_tests(); }
