// FarmHash Fingerprint64 (farmhashna::Hash64), which never changes; TensorFlow's
// string_to_hash_bucket_fast is this modulo the number of buckets.
//
// Five ranges of length: 0 to 16, 17 to 32, 33 to 64 bytes have a formula each; longer input runs
// in blocks of 64 bytes, the last of which ends with the input and may reach into the one before.
#pragma once

#include <string_view>
#include <utility>

#include "features/load_bytes.h"

namespace anabranch::features {

class Farmhash {
 public:
  static std::uint64_t fingerprint(std::string_view bytes) noexcept {
    const char* at = bytes.data();
    const std::size_t size = bytes.size();
    if (size <= 16) return up_to_16(at, size);
    if (size <= 32) return up_to_32(at, size);
    if (size <= 64) return up_to_64(at, size);
    return blocks(at, size);
  }

 private:
  static constexpr std::uint64_t kPrime0 = 0xC3A5C85C97CB3127;
  static constexpr std::uint64_t kPrime1 = 0xB492B66FBE98F273;
  static constexpr std::uint64_t kPrime2 = 0x9AE16A3B2F90404F;

  struct Pair {
    std::uint64_t first = 0;
    std::uint64_t second = 0;
  };

  static std::uint64_t shift_mix(std::uint64_t value) noexcept { return value ^ (value >> 47); }

  static std::uint64_t join(std::uint64_t low, std::uint64_t high, std::uint64_t factor) noexcept {
    const std::uint64_t first = shift_mix((low ^ high) * factor);
    return shift_mix((high ^ first) * factor) * factor;
  }

  static std::uint64_t up_to_16(const char* at, std::size_t size) noexcept {
    const std::uint64_t factor = kPrime2 + size * 2;
    if (size >= 8) {
      const std::uint64_t a = load64(at) + kPrime2;
      const std::uint64_t b = load64(at + size - 8);
      const std::uint64_t c = std::rotr(b, 37) * factor + a;
      return join(c, (std::rotr(a, 25) + b) * factor, factor);
    }
    if (size >= 4) {
      const std::uint64_t a = load32(at);
      return join(size + (a << 3), load32(at + size - 4), factor);
    }
    if (size == 0) return kPrime2;
    const std::uint32_t first = load8(at);
    const std::uint32_t middle = load8(at + size / 2);
    const std::uint32_t last = load8(at + size - 1);
    const std::uint64_t y = first + (middle << 8);
    const std::uint64_t z = static_cast<std::uint32_t>(size) + (last << 2);
    return shift_mix(y * kPrime2 ^ z * kPrime0) * kPrime2;
  }

  static std::uint64_t up_to_32(const char* at, std::size_t size) noexcept {
    const std::uint64_t factor = kPrime2 + size * 2;
    const std::uint64_t a = load64(at) * kPrime1;
    const std::uint64_t b = load64(at + 8);
    const std::uint64_t c = load64(at + size - 8) * factor;
    const std::uint64_t d = load64(at + size - 16) * kPrime2;
    return join(std::rotr(a + b, 43) + std::rotr(c, 30) + d, a + std::rotr(b + kPrime2, 18) + c,
                factor);
  }

  static std::uint64_t up_to_64(const char* at, std::size_t size) noexcept {
    const std::uint64_t factor = kPrime2 + size * 2;
    const std::uint64_t a = load64(at) * kPrime2;
    const std::uint64_t b = load64(at + 8);
    const std::uint64_t c = load64(at + size - 8) * factor;
    const std::uint64_t d = load64(at + size - 16) * kPrime2;
    const std::uint64_t y = std::rotr(a + b, 43) + std::rotr(c, 30) + d;
    const std::uint64_t z = join(y, a + std::rotr(b + kPrime2, 18) + c, factor);
    const std::uint64_t e = load64(at + 16) * factor;
    const std::uint64_t f = load64(at + 24);
    const std::uint64_t g = (y + load64(at + size - 32)) * factor;
    const std::uint64_t h = (z + load64(at + size - 24)) * factor;
    return join(std::rotr(e + f, 43) + std::rotr(g, 30) + h, e + std::rotr(f + a, 18) + g, factor);
  }

  // 32 bytes and two seeds, not well mixed but fast.
  static Pair weak(const char* at, std::uint64_t a, std::uint64_t b) noexcept {
    const std::uint64_t last = load64(at + 24);
    a += load64(at);
    b = std::rotr(b + a + last, 21);
    const std::uint64_t before = a;
    a += load64(at + 8);
    a += load64(at + 16);
    b += std::rotr(a, 44);
    return {a + last, b + before};
  }

  struct State {
    std::uint64_t x;
    std::uint64_t y;
    std::uint64_t z;
    Pair v;
    Pair w;

    // `weight` is 1 for blocks, 9 for the last one.
    void block(const char* at, std::uint64_t factor, std::uint64_t weight) noexcept {
      x = std::rotr(x + y + v.first + load64(at + 8), 37) * factor;
      y = std::rotr(y + v.second + load64(at + 48), 42) * factor;
      x ^= w.second * weight;
      y += v.first * weight + load64(at + 40);
      z = std::rotr(z + w.first, 33) * factor;
      v = weak(at, v.second * factor, x + w.first);
      w = weak(at + 32, z + w.second, y + load64(at + 16));
      std::swap(z, x);
    }
  };

  static std::uint64_t blocks(const char* at, std::size_t size) noexcept {
    constexpr std::uint64_t kSeed = 81;
    const std::uint64_t y = kSeed * kPrime1 + 113;
    State state{kSeed * kPrime2 + load64(at), y, shift_mix(y * kPrime2 + 113) * kPrime2, {}, {}};
    const std::size_t rest = (size - 1) % 64;  // of the last block, less one
    for (const char* end = at + (size - 1) / 64 * 64; at != end; at += 64) {
      state.block(at, kPrime1, 1);
    }
    const std::uint64_t factor = kPrime1 + ((state.z & 0xFF) << 1);
    state.w.first += rest;
    state.v.first += state.w.first;
    state.w.first += state.v.first;
    state.block(at + rest - 63, factor, 9);
    return join(join(state.v.first, state.w.first, factor) + shift_mix(state.y) * kPrime0 + state.z,
                join(state.v.second, state.w.second, factor) + state.x, factor);
  }
};

}  // namespace anabranch::features
