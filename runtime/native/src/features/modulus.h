// Remainders by a divisor that is known beforehand, without a division for each.
#pragma once

#include <bit>
#include <cstdint>

namespace anabranch::features {

// Source: Granlund and Montgomery, "Division by Invariant Integers using Multiplication" (1994),
// figure 4.1, for words of 64 bits.
class Modulus {
 public:
  // 0 stands for 2^64: every number is its own remainder.
  explicit Modulus(std::uint64_t divisor) noexcept : divisor_(divisor) {
    if (divisor == 0) return;
    const int bits = static_cast<int>(std::bit_width(divisor - 1));
    const Wide power = Wide{1} << bits;
    factor_ = static_cast<std::uint64_t>(((power - divisor) << 64) / divisor + 1);
    before_ = bits > 0 ? 1 : 0;
    after_ = bits > 0 ? bits - 1 : 0;
  }

  std::uint64_t of(std::uint64_t number) const noexcept {
    if (divisor_ == 0) return number;
    const auto high = static_cast<std::uint64_t>((Wide{factor_} * number) >> 64);
    const std::uint64_t quotient = (high + ((number - high) >> before_)) >> after_;
    return number - quotient * divisor_;
  }

 private:
  __extension__ using Wide = unsigned __int128;

  std::uint64_t divisor_;
  std::uint64_t factor_ = 0;
  int before_ = 0;
  int after_ = 0;
};

}  // namespace anabranch::features
