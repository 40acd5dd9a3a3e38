#include "features/modulus.h"

#include <cstdint>
#include <random>

#include "check.h"

using anabranch::features::Modulus;

TEST(remainders_are_those_of_division) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    // Of every size, and near powers of two.
    std::uint64_t divisor = random() >> (random() % 64);
    if (i % 4 == 0) divisor = (std::uint64_t{1} << (random() % 64)) + random() % 3 - 1;
    if (divisor == 0) continue;
    const Modulus modulus(divisor);
    for (const std::uint64_t number :
         {std::uint64_t{0}, divisor - 1, divisor, divisor + 1, ~std::uint64_t{0},
          ~std::uint64_t{0} - divisor, random(), random() >> (random() % 64),
          random() / divisor * divisor, random() / divisor * divisor - 1}) {
      CHECK_EQ(modulus.of(number), number % divisor);
    }
  }
}

TEST(zero_keeps_all_bits) {
  CHECK_EQ(Modulus(0).of(~std::uint64_t{0}), ~std::uint64_t{0});
  CHECK_EQ(Modulus(1).of(~std::uint64_t{0}), std::uint64_t{0});
}

int main() { return anabranch::testing::run_tests(); }
