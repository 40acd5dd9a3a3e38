// MurmurHash3 for x64, 128 bits, after Austin Appleby's description; the first eight bytes of it.
#pragma once

#include <string_view>

#include "features/load_bytes.h"

namespace anabranch::features {

class Murmur3 {
 public:
  static std::uint64_t hash_low(std::string_view bytes, std::uint32_t seed) noexcept {
    std::uint64_t low = seed;
    std::uint64_t high = seed;
    const char* at = bytes.data();
    for (const char* end = at + bytes.size() / 16 * 16; at != end; at += 16) {
      low ^= scramble_low(load64(at));
      low = (std::rotl(low, 27) + high) * 5 + 0x52DCE729;
      high ^= scramble_high(load64(at + 8));
      high = (std::rotl(high, 31) + low) * 5 + 0x38495AB5;
    }
    const std::size_t left = bytes.size() % 16;
    if (left > 8) high ^= scramble_high(load_tail(at + 8, left - 8));
    if (left > 0) low ^= scramble_low(left < 8 ? load_tail(at, left) : load64(at));
    low ^= bytes.size();
    high ^= bytes.size();
    low += high;
    high += low;
    return mix(low) + mix(high);
  }

 private:
  static constexpr std::uint64_t kFirst = 0x87C37B91114253D5;
  static constexpr std::uint64_t kSecond = 0x4CF5AD432745937F;

  static std::uint64_t scramble_low(std::uint64_t word) noexcept {
    return std::rotl(word * kFirst, 31) * kSecond;
  }

  static std::uint64_t scramble_high(std::uint64_t word) noexcept {
    return std::rotl(word * kSecond, 33) * kFirst;
  }

  // Fewer than nine bytes, zeros behind them.
  static std::uint64_t load_tail(const char* bytes, std::size_t count) noexcept {
    if (count >= 4) {  // two words of four that may share bytes
      const std::uint64_t end = load32(bytes + count - 4);
      return load32(bytes) | end << (8 * (count - 4));
    }
    std::uint64_t value = load8(bytes);
    if (count > 1) value |= static_cast<std::uint64_t>(load8(bytes + 1)) << 8;
    if (count > 2) value |= static_cast<std::uint64_t>(load8(bytes + 2)) << 16;
    return value;
  }

  static std::uint64_t mix(std::uint64_t sum) noexcept {
    sum = (sum ^ (sum >> 33)) * 0xFF51AFD7ED558CCD;
    sum = (sum ^ (sum >> 33)) * 0xC4CEB9FE1A85EC53;
    return sum ^ (sum >> 33);
  }
};

}  // namespace anabranch::features
