// Decimal text of integers where many are hashed.
//
// Text is made eight digits at a time in a register and stored in words of eight bytes: a hash that
// loads such words again finds each in one store, which processors hand on at once; bytes stored
// one by one they do not.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "anabranch/features/hashing.h"

namespace anabranch::features {

class DecimalText {
 public:
  // The same as `decimal_text`; good until the next call.
  std::string_view of(std::int64_t value) noexcept {
    const auto number = static_cast<std::uint64_t>(value);
    if (number < kGroup) {
      const std::size_t digits = count_digits(static_cast<std::uint32_t>(number));
      store(0, eight_digits(static_cast<std::uint32_t>(number)) >> (8 * (8 - digits)));
      return {text_, digits};
    }
    if (number < kGroup * kGroup) {
      const auto high = static_cast<std::uint32_t>(number / kGroup);
      const std::size_t digits = count_digits(high);
      const std::uint64_t last = eight_digits(static_cast<std::uint32_t>(number % kGroup));
      const std::uint64_t first = eight_digits(high) >> (8 * (8 - digits));
      if (digits == 8) {
        store(0, first);
        store(8, last);
      } else {
        store(0, first | last << (8 * digits));
        store(8, last >> (8 * (8 - digits)));
      }
      return {text_, digits + 8};
    }
    return decimal_text(value, text_);
  }

 private:
  static constexpr std::uint64_t kGroup = 100'000'000;

  static std::size_t count_digits(std::uint32_t number) noexcept {
    constexpr std::uint32_t kPowers[] = {1,      10,      100,      1000,     10000,
                                         100000, 1000000, 10000000, 100000000};
    const auto about = static_cast<std::size_t>(std::bit_width(number | 1) * 1233) >> 12;
    return about + 1 - (number < kPowers[about] ? 1 : 0) + (number == 0 ? 1 : 0);
  }

  // All eight digits, the first in the lowest byte: halves, quarters and eighths by turns.
  static std::uint64_t eight_digits(std::uint32_t number) noexcept {
    std::uint64_t parts = number / 10000 | static_cast<std::uint64_t>(number % 10000) << 32;
    std::uint64_t upper = (parts * 10486 >> 20) & 0x0000'007F'0000'007F;  // by 100
    parts = upper | (parts - upper * 100) << 16;
    upper = (parts * 103 >> 10) & 0x000F'000F'000F'000F;  // by 10
    parts = upper | (parts - upper * 10) << 8;
    return parts + 0x3030'3030'3030'3030;
  }

  void store(std::size_t at, std::uint64_t word) noexcept {
    std::memcpy(text_ + at, &word, sizeof word);
  }

  static_assert(std::endian::native == std::endian::little);

  alignas(8) char text_[24];
};

static_assert(sizeof(DecimalText) >= kDecimalBytes);

}  // namespace anabranch::features
