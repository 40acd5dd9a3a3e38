#include "features/decimal.h"

#include <cstdint>
#include <limits>
#include <random>
#include <string>

#include "check.h"

using anabranch::features::DecimalText;

namespace {

void check(std::int64_t value) {
  DecimalText text;
  CHECK_EQ(std::string(text.of(value)), std::to_string(value));
}

}  // namespace

TEST(texts_are_those_of_the_library) {
  for (std::int64_t value = -2000; value <= 200000; ++value) check(value);
  for (std::int64_t power = 1;; power *= 10) {
    for (const std::int64_t off : {-1, 0, 1}) {
      check(power + off);
      check(-power + off);
    }
    if (power > std::numeric_limits<std::int64_t>::max() / 10) break;
  }
  std::mt19937_64 random(3);
  for (int i = 0; i < 500000; ++i) {
    check(static_cast<std::int64_t>(random()) >> (random() % 64));
    check(static_cast<std::int64_t>(random() >> 1 >> (random() % 63)));
  }
  check(std::numeric_limits<std::int64_t>::min());
  check(std::numeric_limits<std::int64_t>::max());
}

int main() { return anabranch::testing::run_tests(); }
