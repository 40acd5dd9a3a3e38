// XXH64, after the xxHash specification 0.8, section "XXH64 algorithm description".
#pragma once

#include <string_view>

#include "features/load_bytes.h"

namespace anabranch::features {

class Xxh64 {
 public:
  static std::uint64_t hash(std::string_view bytes, std::uint64_t seed) noexcept {
    const char* at = bytes.data();
    std::size_t left = bytes.size();
    std::uint64_t sum = seed + kPrime5;
    if (left >= 32) {
      sum = stripes(at, left, seed);
      at += left / 32 * 32;
      left %= 32;
    }
    sum += bytes.size();
    for (; left >= 8; at += 8, left -= 8) {
      sum = std::rotl(sum ^ round(0, load64(at)), 27) * kPrime1 + kPrime4;
    }
    if (left >= 4) {
      sum = std::rotl(sum ^ (load32(at) * kPrime1), 23) * kPrime2 + kPrime3;
      at += 4;
      left -= 4;
    }
    for (; left > 0; ++at, --left) sum = std::rotl(sum ^ (load8(at) * kPrime5), 11) * kPrime1;
    sum = (sum ^ (sum >> 33)) * kPrime2;
    sum = (sum ^ (sum >> 29)) * kPrime3;
    return sum ^ (sum >> 32);
  }

 private:
  static constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87;
  static constexpr std::uint64_t kPrime2 = 0xC2B2AE3D27D4EB4F;
  static constexpr std::uint64_t kPrime3 = 0x165667B19E3779F9;
  static constexpr std::uint64_t kPrime4 = 0x85EBCA77C2B2AE63;
  static constexpr std::uint64_t kPrime5 = 0x27D4EB2F165667C5;

  static std::uint64_t round(std::uint64_t lane, std::uint64_t word) noexcept {
    return std::rotl(lane + word * kPrime2, 31) * kPrime1;
  }

  // The four lanes over all whole stripes of 32 bytes, brought together.
  static std::uint64_t stripes(const char* at, std::size_t size, std::uint64_t seed) noexcept {
    std::uint64_t lanes[4] = {seed + kPrime1 + kPrime2, seed + kPrime2, seed, seed - kPrime1};
    for (const char* end = at + size / 32 * 32; at != end; at += 32) {
      for (int i = 0; i < 4; ++i) lanes[i] = round(lanes[i], load64(at + 8 * i));
    }
    std::uint64_t sum = std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) +
                        std::rotl(lanes[3], 18);
    for (const std::uint64_t lane : lanes) sum = (sum ^ round(0, lane)) * kPrime1 + kPrime4;
    return sum;
  }
};

}  // namespace anabranch::features
