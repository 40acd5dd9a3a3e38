// The two readers of common decimals give the same number wherever both give one.
#include "json_decimal.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <tuple>

#include "anabranch/cpu.h"
#include "check.h"
#include "json_decimal_sse.h"

using namespace anabranch::json_detail;

namespace {

std::string padded(std::string text) { return text + std::string(kReach, ' '); }

std::string random_decimal(std::mt19937_64& random) {
  std::string text;
  const auto digits = [&](std::uint64_t most) {
    for (auto left = random() % (most + 1); left > 0; --left) {
      text += static_cast<char>('0' + random() % 10);
    }
  };
  digits(random() % 3 == 0 ? 24 : 4);
  if (random() % 4 != 0) text += '.';
  digits(random() % 2 == 0 ? 24 : 8);
  const char* const behind[] = {",", "]", " ", "e5", "E-12", ".", "x", "/", ":", "e", "-"};
  return text + behind[random() % std::size(behind)];
}

// What a reader of floats makes of a number: its length and value, or nothing.
template <class Decimals>
std::pair<std::ptrdiff_t, float> read(const std::string& text) {
  float number = 0;
  const char* const end = take_number<Decimals>(text.data(), number);
  return {end == nullptr ? -1 : end - text.data(), number};
}

void check_against_strtof(const std::string& text, const std::pair<std::ptrdiff_t, float>& result) {
  if (result.first < 0) return;
  char* end;
  CHECK_EQ(result.second, std::strtof(text.c_str(), &end));
  CHECK_EQ(result.first, end - text.c_str());
}

}  // namespace

TEST(portable_decimals_are_exact) {
  std::mt19937_64 random(29);
  std::size_t taken = 0;
  for (int round = 0; round < 300000; ++round) {
    const std::string text = padded(random_decimal(random));
    const auto result = read<PortableDecimals>(text);
    taken += result.first >= 0;
    check_against_strtof(text, result);
  }
  CHECK(taken > 100000);
}

#if defined(__x86_64__)

TEST(sse_decimals_are_exact_and_take_nearly_as_many) {
  if (!anabranch::cpu::has_sse41()) return;
  std::mt19937_64 random(29);
  std::size_t taken = 0;
  std::size_t left = 0;
  for (int round = 0; round < 300000; ++round) {
    const std::string text = padded(random_decimal(random));
    const auto result = read<Sse41Decimals>(text);
    taken += result.first >= 0;
    left += result.first < 0 && read<PortableDecimals>(text).first >= 0;
    check_against_strtof(text, result);
  }
  CHECK(taken > 100000);
  CHECK(left < taken / 20);
}

#endif

TEST(malformed_and_endless_numbers_are_left_alone) {
  for (const char* text :
       {"", ".5", "5.", "5.e1", "00", "01.5", "-", "--1", "+1", "e5", "1e", "1e+", "1e12345678",
        "123456789012345678901", "0.1234567890123456789012345"}) {
    CHECK_EQ(read<PortableDecimals>(padded(text)).first, -1);
#if defined(__x86_64__)
    if (anabranch::cpu::has_sse41()) CHECK_EQ(read<Sse41Decimals>(padded(text)).first, -1);
#endif
  }
}

TEST(runs_end_where_the_common_ends) {
  float values[4];
  const auto run = [&](const char* text, std::size_t count) {
    const std::string all = padded(text);
    const auto end =
        take_numbers<PortableDecimals>(all.data(), all.data() + all.size(), values, values + count);
    return std::tuple(end.at - all.data(), end.next - values, end.behind_number);
  };
  CHECK((run("1,2, 3]", 4) == std::tuple(6, 3, true)));
  CHECK((run("1,2,  3]", 4) == std::tuple(5, 2, false)));
  CHECK((run("1,[2]", 4) == std::tuple(2, 1, false)));
  CHECK((run("1,2,3,4,5", 4) == std::tuple(8, 4, false)));
  CHECK((run("[1]", 4) == std::tuple(0, 0, false)));
  CHECK_EQ(values[3], 4.0f);
}

int main() { return anabranch::testing::run_tests(); }
